"""One sentence in each of many languages and scripts. Every function that reads text is tested on all of them."""

import unicodedata
from typing import NamedTuple


class Sentence(NamedTuple):
    """A sentence, taken apart by hand.

    Args:
        text: str.
        words: its words with a space between them; in scripts without spaces, the characters that a reader sees.
        inside: a part of a word that a program may take for a whole one: the marks or letters behind it are lost.
        stop: the sign at its end; "" for none.
    """

    text: str
    words: str
    inside: str
    stop: str = "."


def _decomposed(*texts):
    return Sentence(*(unicodedata.normalize("NFD", text) for text in texts[:2]), *texts[2:])


SENTENCES = {
    "English": Sentence("The men painted five houses.", "The men painted five houses", "house"),
    "German": Sentence("Die größere Katze schläft.", "Die größere Katze schläft", "größe"),
    "French, decomposed": _decomposed("Un élève préfère la forêt.", "Un élève préfère la forêt", "fore"),
    "Vietnamese, decomposed": _decomposed("Tôi thích đọc sách ở nhà.", "Tôi thích đọc sách ở nhà", "nha"),
    "Turkish": Sentence("Çocuk Iğdır'da kitap okuyor.", "Çocuk Iğdır da kitap okuyor", "kita"),
    "Russian, decomposed": _decomposed("Мой младший брат пьёт чай.", "Мой младший брат пьёт чай", "чаи"),
    "Greek, decomposed": _decomposed("Το παιδί διαβάζει ένα βιβλίο.", "Το παιδί διαβάζει ένα βιβλίο", "παιδι"),
    "Arabic": Sentence("يَقْرَأُ الْوَلَدُ كِتَابًا.", "يَقْرَأُ الْوَلَدُ كِتَابًا", "الْوَلَد"),
    "Persian": Sentence("او کتاب\u200cها را می\u200cخواند.", "او کتاب\u200cها را می\u200cخواند", "کتاب"),
    "Hebrew": Sentence("הַיֶּלֶד קוֹרֵא סֵפֶר.", "הַיֶּלֶד קוֹרֵא סֵפֶר", "סֵפ"),
    "Hindi": Sentence("लड़का हिन्दी में रामायण पढ़ता है।", "लड़का हिन्दी में रामायण पढ़ता है", "राम", "।"),
    "Bengali": Sentence("ছেলেটি একটি বই পড়ে।", "ছেলেটি একটি বই পড়ে", "ব", "।"),
    "Tamil": Sentence("அவள் தமிழ் நூலைப் படிக்கிறாள்.", "அவள் தமிழ் நூலைப் படிக்கிறாள்", "தமிழ"),
    "Thai": Sentence("เด็กผู้หญิงอ่านน้ำ", "เด็ ก ผู้ ห ญิ ง อ่ า น น้ำ", "ด", ""),
    "Khmer": Sentence("ខ្ញុំអានសៀវភៅ។", "ខ្ញុំ អា ន សៀ វ ភៅ", "ខ", "។"),
    "Burmese": Sentence("သူ စာအုပ် ဖတ်နေသည်။", "သူ စာ အု ပ် ဖ တ် နေ သ ည်", "ည", "။"),
    "Chinese": Sentence("我在北京喝茶。", "我 在 北 京 喝 茶", "北京大学", "。"),
    "Japanese": Sentence("私はコーヒーが好きです。", "私 は コ ー ヒ ー が 好 き で す", "カ", "。"),
    "Japanese, decomposed": _decomposed("ガラスです。", "ガ ラ ス で す", "カ", "。"),
    "Korean": Sentence("나는 학교에서 책을 읽는다.", "나는 학교에서 책을 읽는다", "학교"),
    "Korean, decomposed": _decomposed("나는 학교에서 책을 읽는다.", "나는 학교에서 책을 읽는다", "학교"),
    "Armenian": Sentence("Տղան գիրք է կարդում։", "Տղան գիրք է կարդում", "գիր", "։"),
    "Georgian": Sentence("ბიჭი წიგნს კითხულობს.", "ბიჭი წიგნს კითხულობს", "წიგნ"),
    "Amharic": Sentence("ልጁ መጽሐፍ ያነባል።", "ልጁ መጽሐፍ ያነባል", "መጽሐ", "።"),
}
TERMS = {sentence.inside: "x" for sentence in SENTENCES.values()} | {"Élève".lower(): "y"}
