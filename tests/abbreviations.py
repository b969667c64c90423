"""Lines of six languages with abbreviations, small corpora that have the same ones, and lines of two sentences.

`CORPORA` holds, for each language, single sentences. `UNSEEN` holds other sentences with the same abbreviations. Each
line of `PAIRS` is two sentences with "|" between them.
"""

CORPORA = {
    "de": """Die Firma zahlt zzgl. Reisekosten und evtl. Spesen.
Alle Preise gelten zzgl. Mehrwertsteuer.
Die Karte kostet einschl. Getränk zehn Euro.
Er kam einschl. Gepäck zu spät.
Das Haus steht in der Nähe des sog. Friedhofs.
Die sog. Freunde kamen nicht.
Bitte bringen Sie ggf. Ihren Ausweis mit.
Frau Kurz, geb. Lang, wohnt hier.
Herr Alt (geb. Neu) ist verreist.
Hier geht es zu.
Er ist da.
Wir sind alle da.
Ich war nie da.
Die Tür ist zu.
Er machte das Fenster zu.
Am 3. Mai oder am 12. Juni wird gewählt.""",
    "en": """We sailed up the Missis. River to the north.
See vol. XII and fig. Seven of the atlas.
The quotation is from vol. Three.
As fig. Two shows, the line is straight.
He came on Tues. April 7 and on Thurs. May 9.
On Tues. June 2 the shop is closed.
The parade is on Thurs. September 4.
They met at Ocean Blvd. Santa Monica.
Turn left at Wilshire Blvd. West.
She gave it to me.
They came with us and asked me.
He did not see me.
Everyone left with us.
She waited for us.
This is for us.""",
    "ru": """Выступали проф. Орлов и доц. Белов.
Книгу написал проф. Лебедев с доц. Зайцевым.
Он живёт в гор. Туле.
Поезд идёт в гор. Омск.
Задание дал тов. Смирнов.
Пришёл тов. Кузнецов.
Там были, напр. Москва и Киев.
Возьмём, напр. Волгу.
Я видел их и их дом.
Мы ждали их.
Она знает их.
Позови их.""",
    "th": """พบ ดร. มานะ ที่บ้าน
อ่านหนังสือของ รศ. วิชัย แล้ว
โทรหา ผศ. มาลี ด้วย""",
    "ta": """திரு. முருகன் வந்தார்.
நான் திரு. கண்ணனைப் பார்த்தேன்.
திருமதி. கமலா பாடினாள்.
இது திருமதி. லதாவின் வீடு.""",
    "ko": """오늘 주식회사 한빛. 서울 지점에 갔다.
우리는 집에 있었다.
나는 학교에 갔다.""",
}

UNSEEN = {
    "de": """Der Betrag ist zzgl. Versand und einschl. Steuern.
Melden Sie sich ggf. Montag.
Maria Groß, geb. Klein, kam mit der sog. Tante.
Am 24. Dezember und am 1. Januar ist zu.""",
    "en": """It is printed in vol. Nine, fig. One.
The exam is on Tues. May 5 or Thurs. May 7.
The bus stops at Sunset Blvd. Hollywood.
Ask Dr. Brown, J. R. Ewing and the U.S. Army.""",
    "ru": """Приехал проф. Морозов, а доц. Волков остался.
Поезжайте, напр. Сергей, в гор. Тверь.
Это сказал тов. Павлов.""",
    "th": """วันนี้ ดร. สมศรี พบ รศ. ประเสริฐ
ขอบคุณ ผศ. อรุณ มาก""",
    "ta": """திரு. ராமன் எங்கே?
அவள் திருமதி. மீனாவின் தோழி.""",
    "ko": """이것은 3.5 킬로그램이다.""",
}

PAIRS = {
    "de": """Das Auto ist da.|Wir fahren los.
Mach die Tür zu.|Es ist kalt.
Kommst du mit?|Ja, gern.
Er kam 1999.|Dann ging er.
„Geh weg.“|Er ging.""",
    "en": """She knows me.|He does not.
Come with us.|It is late.
I said "Never."|She laughed.
Is it late?|Yes!
We left in 2001.|It rained.""",
    "fr": """Je pense à lui.|Il dort.
Tu viens ?|Oui.
Elle chante.|Il danse.
« Sors. »|Il sortit.""",
    "ru": """Я знаю их.|Они хорошие.
Идёт дождь.|Мы дома.
Кто там?|Это я.""",
    "el": """Βρέχει.|Μένουμε σπίτι.
Τι κάνεις;|Είμαι καλά.
Ποιος είναι;|Εγώ.""",
    "ka": """წვიმს.|სახლში ვართ.
ვინ არის?|მე ვარ.""",
    "hy": """Անձրև է գալիս։|Տանն ենք։""",
    "am": """ዝናብ ይዘንባል።|ቤት ነን።
ማን ነው?|እኔ ነኝ።""",
    "he": """יורד גשם.|אנחנו בבית.
מי שם?|זה אני.""",
    "ar": """المطر ينزل.|نحن في البيت.
من هناك؟|أنا أحمد.""",
    "ur": """بارش ہو رہی ہے۔|ہم گھر پر ہیں۔""",
    "hi": """बारिश हो रही है।|हम घर पर हैं।
कौन है?|मैं हूँ।
वह गया॥|मैं आया॥""",
    "ta": """மழை பெய்கிறது.|நாங்கள் வீட்டில் இருக்கிறோம்.
யார் அது?|நான்தான்.""",
    "ko": """비가 온다.|우리는 집에 있다.
누구세요?|저예요.""",
    "bo": """ཆར་པ་འབབ་གི་འདུག།|ང་ཚོ་ཁྱིམ་ལ་ཡོད།""",
}

UNSPACED_PAIRS = {
    "zh": """下雨了。|我们在家。
谁在那儿？|是我！
他走了｡|我来了。""",
    "ja": """雨です。|家にいます。
誰ですか？|私です。
すごい！|「本当だ。」""",
    "km": """ភ្លៀងធ្លាក់។|យើងនៅផ្ទះ។
គាត់មក៕|ខ្ញុំទៅ។""",
    "my": """မိုးရွာနေသည်။|ကျွန်တော်တို့ အိမ်မှာရှိသည်။""",
    "hi": """वह गया।|मैं आया।""",
    "ar": """من هناك؟|أنا أحمد.""",
    "am": """ዝናብ ይዘንባል።|ቤት ነን።""",
}
