"""Right translations of fourteen directions: none of the rules drops one, in a small corpus or alone."""

import pytest

from keras_transformer.tools.cleaning.examination import Examiner
from keras_transformer.tools.cleaning.rules import usual_ratio
from keras_transformer.tools.cleaning.settings import CleaningSettings

RIGHT = {
    ("en", "ja"): [
        ("10,000 yen", "１万円"),
        ("May 22", "５月２２日"),
        ("March 3, 2026", "2026年3月3日"),
        ("Menu", "メニュー"),
        ("Thank you.", "ありがとうございます。"),
        ("The meeting starts at 5:30 PM.", "会議は17時30分に始まります。"),
        ("About 120 million people live in Japan.", "日本には約1億2000万人が住んでいます。"),
        ("My iPhone 15 Pro Max is broken.", "私のiPhone 15 Pro Maxが壊れました。"),
        ("The temperature is 25 °C (77 °F).", "気温は２５℃（７７℉）です。"),
        ("Chapter 3, page 45", "第３章 四十五ページ"),
        ("Two cats and 3 dogs", "猫2匹と犬3匹"),
        ("It opened in 2021.", "令和3年に開業した。"),
    ],
    ("en", "zh"): [
        ("The city has 1.5 million inhabitants.", "这座城市有150万居民。"),
        ("On May 22, 3 people came.", "5月22日来了三个人。"),
        ("Call me at 8:15 p.m.", "晚上8点15分给我打电话。"),
        ("See www.example.com (in English).", "请看www.example.com（英文）。"),
        ("The 19th century", "19世纪"),
        ("He bought an HP LaserJet printer.", "他买了一台惠普打印机。"),
        ("The population fell by 30,000 in 1990.", "1990年人口减少了3万。"),
    ],
    ("en", "ko"): [
        ("It costs 35,000 won.", "3만 5천 원입니다."),
        ("The meeting is at 3 p.m.", "회의는 15시에 있습니다."),
        ("The KBS news starts at 9.", "KBS 뉴스는 9시에 시작합니다."),
        ("March 1, 1919", "1919년 3월 1일"),
        ("Visit https://example.kr now.", "지금 https://example.kr을 방문하세요."),
        ("Mon, Jun 6, 1960", "1960년 6월 6일 (월)"),
        ("11:54 – 11:58 PM", "PM 11:54~11:58"),
        ("3/6/1997", "1997. 3. 6."),
        ("July – October 2098", "2098년 7월 ~ 10월"),
    ],
    ("en", "hi"): [
        ("100,000 rupees", "1,00,000 रुपये"),
        ("It costs 2 crore rupees.", "इसकी कीमत 2 करोड़ रुपये है।"),
        ("It costs 20 million rupees.", "इसकी कीमत 2 करोड़ रुपये है।"),
        ("He earned 1.5 lakh rupees.", "उसने 1,50,000 रुपये कमाए।"),
        ("The book has 250 pages.", "किताब में २५० पन्ने हैं।"),
    ],
    ("en", "ar"): [
        ("The price is 1,250.50 dollars.", "السعر ١٬٢٥٠٫٥ دولار."),
        ("He is 25 years old.", "عمره ٢٥ سنة."),
        ("Welcome!", "مرحبـــا بكم!"),
        ("The company has 3 million users.", "للشركة 3 ملايين مستخدم."),
        ("The company has 3,000 users.", "للشركة ٣ آلاف مستخدم."),
        ("See https://example.com, please.", "يرجى الاطلاع على https://example.com،"),
    ],
    ("en", "ru"): [
        ("It ended with 5 million losses.", "Всё закончилось 5 миллионами потерь."),
        ("The train leaves at 6:45 p.m.", "Поезд отправляется в 18:45."),
        ("Windows 11 is out.", "Вышла Windows 11."),
        ("1,250.75 rubles", "1 250,75 рубля"),
        ("Hello :)", "Привет))"),
        ("On 9 May 1945", "9.05.1945"),
        ("In 100 metres, turn left.", "Через 100 м поверните налево."),
        ("12,000 copies were sold.", "Было продано 12 тыс. экземпляров."),
        ("Thanks!", "Большое спасибо!"),
        ("The 20th century", "XX век"),
    ],
    ("en", "de"): [
        ("1.50 kg", "1,5 kg"),
        ("the 1990s", "die 90er Jahre"),
        ("It is half past 8 p.m., 8:30 sharp.", "Es ist Punkt 20.30 Uhr."),
        ("10 thousand people came.", "10.000 Menschen kamen."),
        ("2½ hours", "2,5 Stunden"),
        ("3/4 of a liter", "0,75 Liter"),
        ("US$ 5", "5 US-Dollar"),
        ("50 %", "50 Prozent"),
        ("Phone: +49 30 123456-78", "Tel.: +49 30 12345678"),
        ("Version 1.2.3 came out on 1/2/2024.", "Version 1.2.3 erschien am 2.1.2024."),
        ("No smoking", "Rauchen verboten"),
        ("In the 1800s", "Im 19. Jahrhundert"),
    ],
    ("de", "fr"): [
        ("Das kostet 1.234.567,89 Euro.", "Cela coûte 1 234 567,89 euros."),
        ("Der Zug fährt um 17.05 Uhr.", "Le train part à 17 h 05."),
        ("Die 60er Jahre", "Les années 1960"),
        ("Ich komme am 1. Mai.", "Je viens le 1er mai."),
        ("Das 18. Jahrhundert", "Le XVIIIe siècle"),
        ("Er sagte: „Guten Tag!“", "Il dit : « Bonjour ! »"),
        ("20 Mio. Euro", "20 M€"),
        ("22:32–23:00 Uhr", "22:32 – 23:00"),
    ],
    ("en", "th"): [
        ("He was born in 2020.", "เขาเกิดปี พ.ศ. 2563"),
        ("The ticket costs 1,500 baht.", "ตั๋วราคา ๑,๕๐๐ บาท"),
        ("A salary of 30,000 baht", "เงินเดือน 3 หมื่นบาท"),
        ("See https://example.com for details.", "ดูรายละเอียดที่https://example.comได้เลย"),
        ("I use Facebook every day.", "ฉันใช้ Facebook ทุกวัน"),
        ("The shop closes at 9 p.m.", "ร้านปิดเวลา 21.00 น."),
    ],
    ("en", "tr"): [
        ("100,000 people came.", "100 bin kişi geldi."),
        ("The rate is 12.5%.", "Oran %12,5."),
        ("It starts at 4 p.m.", "Saat 16.00'da başlıyor."),
        ("On 29 October 1923", "29 Ekim 1923'te"),
        ("I live in Istanbul.", "İstanbul'da yaşıyorum."),
    ],
    ("es", "pl"): [
        ("Cuesta 1500 millones de euros.", "Kosztuje 1,5 mld euro."),
        ("Nació el 3 de mayo de 1791.", "Urodził się 3.05.1791 r."),
        ("La reunión es a las 5 de la tarde.", "Spotkanie jest o 17:00."),
        ("1.000 personas", "1000 osób"),
        ("20 mil personas", "20 tysięcy osób"),
        ("El siglo XXI", "XXI wiek"),
    ],
    ("en", "fa"): [
        ("He was born in 1990.", "او در سال ۱۳۶۹ به دنیا آمد."),
        ("The book costs 250,000 tomans.", "قیمت کتاب ۲۵۰ هزار تومان است."),
        ("I want a cup of tea.", "یک فنجان چای می‌خواهم."),
        ("March 21, 2024", "۱ فروردین ۱۴۰۳"),
        ("March 3, 2026", "۱۲ اسفند ۱۴۰۴"),
    ],
    ("zh", "ja"): [
        ("我是学生。", "私は学生です。"),
        ("2026年3月3日", "令和8年3月3日"),
        ("请看https://example.com。", "https://example.comをご覧ください。"),
    ],
    ("en", "el"): [
        ("2 million tourists came in the 1980s.", "2 εκατομμύρια τουρίστες ήρθαν τη δεκαετία του '80."),
        ("At 5 p.m.", "Στις 5 μ.μ."),
    ],
}


@pytest.mark.parametrize("languages", RIGHT, ids="-".join)
def test_no_right_pair_is_dropped(languages):
    usual = usual_ratio(RIGHT[languages])
    for direction, ratio in ((1, usual), (-1, 1.0)):  # of the corpus; about that of each pair alone, either way
        examiner = Examiner(CleaningSettings(), *languages[::direction], usual=ratio)
        turned = [pair[::direction] for pair in RIGHT[languages]]
        assert [(one.step, one.detail, one.pair) for one in examiner.examine(turned)[0] if one.step] == []
