"""Lines of 16 languages with abbreviations, small corpora that have the same abbreviations, and lines of two sentences.

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
    "nl": """Dit is bijv. Amsterdam of Utrecht.
Neem bijv. Marie mee.
De gem. Leiden en de gem. Delft werken samen.
Hij kwam incl. Kinderen.
De prijs is incl. Btw.
Zij woont nabij de burg. Jansenlaan.
Hij werkt op de burg. Smitstraat.
Wij zien hem en kijken naar hem.
Hij gaf het aan hem op zee.
Daar staat de auto op.""",
    "fr": """Voir chap. Deux et chap. Trois du livre.
La réunion est au bât. Pasteur et au bât. Curie.
Le dép. Finances répond.
Il travaille au dép. Ventes.
Contactez la société Martin, anc. Durand et fils.
La rue Neuve (anc. Grande-Rue) est fermée.
Il ne le sait pas, et elle va bien ici.
Elle est partie avec lui.
Je parle de lui.
Nous comptons sur lui.""",
    "es": """Vive en la avda. Goya con su familia.
El hotel está en la avda. América.
Hable con el prof. Ruiz o con la profa. Soto.
El prof. Díaz y la profa. Vega no están.
Véase el cap. Segundo y la pág. Última.
El cap. Primero y la pág. Primera son cortos.
Llegó el gral. Prim ayer.
Murió el gral. Mina.""",
    "it": """Ho parlato con il dott. Verdi e con l'avv. Neri.
Il dott. Russo e l'avv. Conti sono qui.
Scriva al sig. Ferri e alla sig.ra Galli.
Il sig. Fabbri non risponde.
Ci sono mele, pere, ecc. In cucina
L'ing. Moretti costruisce ponti.
Ha telefonato l'ing. Greco.
Non lo so e tu dici di no.
Lei ha detto di no.
Penso di no.""",
    "pt": """Mora na trav. Flores, perto do rio.
A loja fica na trav. Palmas.
Falei com o eng. Souza sobre a obra.
O eng. Lima chegou cedo.
Leia o cap. Quinto e o art. Sexto.
O cap. Sétimo e o art. Oitavo mudaram.
Ela mora com a profa. Rosa.
A profa. Ana ensina bem.""",
    "pl": """Zapytaj prof. Zielińskiego albo inż. Wójcika.
Wykład prof. Lisa i inż. Kota trwał długo.
Mieszka na os. Słonecznym, godz. Ósma.
To jest tzw. Stare Miasto.
Odwiedził tzw. Dom Polski.
Urodził się w woj. Śląskim.
Jedzie przez woj. Opolskie.
Nie znam go i nie widzę go.
Lubię go.
Spotkałem go.""",
    "cs": """Přišel např. Karel nebo Jana.
Vezmi např. Petra.
Je to tzv. Zlatá ulička.
Bydlí v tzv. Novém domě.
Napsal to prof. Dvořák s doc. Malým.
Paní doc. Veselá a prof. Černý odešli.
Narodil se v okr. Kladno.
Jede přes okr. Beroun.""",
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
    "uk": """Лекцію читав проф. Шевчук разом із доц. Бойко.
Статтю написав проф. Коваль із доц. Ткач.
Мешкає на вул. Зелена, буд. Перший.
Зустріч на вул. Садовій, буд. Третій.""",
    "tr": """Toplantı Cumh. Cad. üzerinde yapıldı.
Bu sorunu Doç. Yılmaz çözdü.
Dersi Doç. Demir verdi.
Kitabı Prof. Kaya yazdı.
Ev Atatürk Bulv. Ankara adresinde.
Dükkân İnönü Bulv. Adana adresinde.
Ürünler yakl. On kilo geldi.
Yolda yakl. Yüz kişi vardı.""",
    "hu": """Megérkezett özv. Nagyné és ifj. Kovács.
Itt lakik özv. Tóthné.
Beszéltem ifj. Szabóval.
Lásd az ún. Vörös könyvet.
Ez az ún. Arany torony.
A szerkesztő, szerk. Balogh Éva, beteg.
Könyv, szerk. Kiss Pál, új.""",
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
    "nl": """Bezoek bijv. Rotterdam of de gem. Gouda.
De kamer is incl. Ontbijt.
De school staat aan de burg. Visserlaan.""",
    "fr": """Lisez chap. Quatre au bât. Voltaire.
Écrivez au dép. Achats.
La place Royale (anc. Place du Roi) est belle.""",
    "es": """La tienda está en la avda. Colón.
Preguntó al prof. Gil y a la profa. Mora.
Lea el cap. Tercero y la pág. Quinta.
Vino el gral. Torrijos.""",
    "it": """È arrivato il dott. Marino con l'avv. Costa.
Il sig. Rinaldi vede l'ing. Barbieri.""",
    "pt": """O eng. Costa vive na trav. Santos.
O cap. Nono e o art. Décimo são novos.
A profa. Marta saiu.""",
    "pl": """Rozmawiał z prof. Mazurem i inż. Dudą.
Zwiedzili tzw. Małą Wenecję w woj. Lubuskim.""",
    "cs": """Pozvi např. Evu do tzv. Modrého salonu.
Přednáší prof. Novotný a doc. Horák v okr. Mělník.""",
    "ru": """Приехал проф. Морозов, а доц. Волков остался.
Поезжайте, напр. Сергей, в гор. Тверь.
Это сказал тов. Павлов.""",
    "uk": """Приїхав проф. Мельник і доц. Лисенко.
Це вул. Нова, буд. Другий.""",
    "tr": """Bunu Doç. Şahin ve Prof. Çelik söyledi.
Otel Gazi Bulv. İzmir adresinde ve yakl. Elli odalı.""",
    "hu": """Itt van özv. Kissné és ifj. Molnár.
Megnézte az ún. Fekete házat, szerk. Varga Ildikó.""",
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
    "nl": """Ik zie hem.|Hij slaapt.
Het regent.|We blijven thuis.
Kom je?|Nee.""",
    "fr": """Je pense à lui.|Il dort.
Tu viens ?|Oui.
Elle chante.|Il danse.
« Sors. »|Il sortit.""",
    "es": """¿Quién es?|Soy yo.
Llueve mucho.|Nos quedamos en casa.
¡Qué bien!|Vamos.""",
    "it": """Credo di no.|Non importa.
Piove.|Restiamo a casa.
Chi è?|È lui.""",
    "pt": """Está chovendo.|Ficamos em casa.
Quem é?|Sou eu.
Obrigado!|Até logo.""",
    "pl": """Nie widzę go.|Chyba śpi.
Pada deszcz.|Zostajemy w domu.
Kto tam?|To ja.""",
    "cs": """Prší.|Zůstaneme doma.
Kdo je tam?|To jsem já.
Pes spí.|Kočka taky.""",
    "ru": """Я знаю их.|Они хорошие.
Идёт дождь.|Мы дома.
Кто там?|Это я.""",
    "uk": """Іде дощ.|Ми вдома.
Хто там?|Це я.""",
    "el": """Βρέχει.|Μένουμε σπίτι.
Τι κάνεις;|Είμαι καλά.
Ποιος είναι;|Εγώ.""",
    "tr": """Yağmur yağıyor.|Evdeyiz.
Kim o?|Benim.
İyi misin?|Şükür.""",
    "hu": """Esik az eső.|Otthon maradunk.
Ki az?|Én vagyok.""",
    "ka": """წვიმს.|სახლში ვართ.
ვინ არის?|მე ვარ.""",
    "hy": """Անձրև է գալիս։|Տանն ենք։""",
    "am": """ዝናብ ይዘንባል።|ቤት ነን።
ማን ነው?|እኔ ነኝ።""",
    "he": """יורד גשם.|אנחנו בבית.
מי שם?|זה אני.""",
    "ar": """المطر ينزل.|نحن في البيت.
من هناك؟|أنا أحمد.""",
    "fa": """باران می‌بارد.|ما در خانه‌ایم.
کی آنجاست؟|من هستم.""",
    "ur": """بارش ہو رہی ہے۔|ہم گھر پر ہیں۔""",
    "hi": """बारिश हो रही है।|हम घर पर हैं।
कौन है?|मैं हूँ।
वह गया॥|मैं आया॥""",
    "bn": """বৃষ্টি হচ্ছে।|আমরা বাড়িতে।
কে ওখানে?|আমি।""",
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
