"""The words after which a call without marks in the text may not be meant: a table with a row per language.

`docs/healing.md` has this table, written by `python -m tests.reference_tables`.
"""

from __future__ import annotations

import re
from functools import cache

from msgspec import Struct


class Words(Struct, frozen=True):
    """The words of one language. `*` stands for any letters.

    `is_spaced`: the language has spaces between its words; in others, a word is found anywhere.
    """

    language: str
    negation: str
    condition: str
    option: str
    example: str
    report: str
    is_spaced: bool = True

    @property
    def all(self) -> list[str]:
        parts = (self.negation, self.condition, self.option, self.example, self.report)
        return [word for part in parts for word in part.split(", ")]


WORDS = (
    Words(
        "English",
        "not, *n't, never, no, none, neither, nor, cannot, without, avoid*, instead, refuse*, wrong*, incorrect*, "
        "dangerous*, unsafe, harmful, forbid*, prohibit*, rather, skip*, ignore*, beware, warning, malicious*",
        "if, unless, when, whenever, until, once, would, could, should, might, may, can, want*, wish*, prefer*, "
        "confirm*, approv*, permission*, let me know, assum*, suppos*, provided, in case, in theory, imagin*, "
        "were to, you must, you need, you have, you run, you use, you call, you type, later",
        "or, either, option*, alternativ*, choose*, choice*, choosing, pick, versus, vs, possib*, one of, "
        "variant*, candidate*, suggest*, recommend*, propos*, consider*",
        "example*, e.g, eg, instance, such as, sample*, illustrat*, demonstrat*, look like, looks like, "
        "looked like, looking like, like this, like so, format, formatted, syntax, template*, schema*, "
        "hypothetical*, pretend*, dummy, placeholder*, mock*, typical*, usual*, generally, how to, typo",
        "contain*, say, says, said, read as follows, reads, wrote, written, states, stated, documentation, "
        "documented, docs, manual, tutorial, guide*, article, quot*, according, returned, returns, printed, "
        "prints, output, logged, previous*, earlier, already, ran, called, used, executed, invoked, tried, sent, "
        "received, shown, shows, showed, recorded, defined, specification*, spec, asked, told, mean, means, meant, "
        "explain*, described, describes, equivalent*, expect*, recipe, snippet, excerpt, response*, responded",
    ),
    Words(
        "German",
        "nicht, nichts, nie, niemals, kein*, ohne, weder, noch nicht, vermeid*, statt, stattdessen, falsch*, "
        "gefährlich*, verboten*, lieber, ignorier*, warnung, ungültig*, keinesfalls, böswillig*",
        "wenn, falls, sofern, sobald, bis, würde*, könnte*, sollte*, dürfte*, kann, können, darf, dürfen, möchte*, "
        "wollen, bestätig*, genehmig*, erlaubnis, angenommen, vorausgesetzt, gegebenenfalls, später, eventuell, "
        "vielleicht, wäre*",
        "oder, entweder, option*, alternativ*, variante*, möglich*, wahl, wähl*, auswahl, vorschlag*, vorschläge, "
        "schlage, empfehl*, empfohlen*, beide",
        "beispiel*, z.b, zb, etwa so, muster*, vorlage*, schema*, syntax, format*, so aus, sähe, sieht, üblich*, "
        "typisch*, platzhalter*",
        "enthält, enthielt, enthalten, steht, sagt, sagte, schrieb, geschrieben, dokument*, anleitung*, handbuch, "
        "zitat*, zitier*, laut, lautet, lautete, ausgabe*, ausgegeben, protokoll*, vorher, zuvor, früher, bereits, "
        "schon, lief, aufgerufen, ausgeführt, benutzt*, verwendet*, gesendet*, gezeigt, zeigt, zeigte, definier*, "
        "bedeut*, erklär*, beschreib*, beschrieb*, erwart*, antwort*, hieß, heißt",
    ),
    Words(
        "French",
        "ne, n', pas, jamais, aucun*, ni, sans, évite*, éviter, plutôt, faux, fausse*, mauvais*, dangereu*, "
        "interdit*, ignore*, attention, invalide*, malveillant*",
        "si, s'il, s'ils, sauf, quand, lorsque, dès, jusqu'à, pourrai*, pourrions, pourriez, devrai*, devriez, "
        "serai*, peux, peut, pouvez, peuvent, voulez, veux, souhait*, confirm*, approuv*, permission*, suppos*, "
        "éventuellement, peut-être, plus tard, faudrait",
        "ou, soit, option*, alternativ*, choix, choisi*, variante*, possib*, sugg*, propos*, recommand*, deux",
        "exemple*, ex, par ex, modèle*, syntaxe, format*, schéma*, gabarit*, ressembl*, typique*, fictif*, "
        "comme ceci, comme suit, habituel*",
        "contient, contenait, contenu est, dit, disait, écrit, écrivait, document*, manuel, tutoriel*, cit*, "
        "selon, d'après, renvoie, renvoyé*, retourne, retourné*, affiché*, sortie, précédent*, déjà, exécuté*, "
        "appelé*, utilisé*, lancé*, envoyé*, reçu*, montre, montré*, défini*, signifi*, expliqu*, décri*, "
        "attendu*, répon*, avait, auparavant",
    ),
    Words(
        "Spanish",
        "no, nunca, jamás, ningún, ninguna, ninguno, ni, sin, evit*, incorrect*, malo, mala, peligros*, prohib*, "
        "ignor*, cuidado, advertencia, inválid*, malicios*, en lugar, en vez",
        "si, salvo, cuando, hasta, podría*, debería*, sería*, puedo, puede, puedes, pueden, podemos, quiere*, "
        "quieres, desea*, confirm*, aprob*, aprueb*, permiso*, supong*, supon*, quizá*, tal vez, más tarde, luego",
        "o bien, o si no, o esto, o este, opción, opciones, alternativ*, elegir, elige, elija, elección, "
        "variante*, posib*, suger*, sugier*, "
        "recomend*, recomiend*, propon*, propuesta*, ambos, ambas",
        "ejemplo*, ej, p.ej, muestra, plantilla*, sintaxis, format*, esquema*, parec*, típic*, ficticio*, "
        "como este, como esto, habitual*, así se",
        "contiene, contenía, contenido es, dice, decía, dijo, escribió, escrito*, escrita*, document*, manual, "
        "tutorial*, cita*, según, devuelv*, devolv*, imprim*, salida, registro*, anterior*, antes, ya, ejecutad*, "
        "ejecuté, ejecutó, llamado, llamé, usad*, usé, usó, enviad*, recibid*, mostró, mostrad*, muestran, "
        "definid*, signific*, explic*, describ*, esperad*, respuesta*, respond*",
    ),
    Words(
        "Portuguese",
        "não, nunca, jamais, nenhum*, nem, sem, evit*, incorret*, errad*, perigos*, proib*, ignor*, cuidado, "
        "aviso, inválid*, malicios*, em vez",
        "se, caso, salvo, quando, até, poderia*, deveria*, seria*, posso, pode*, podem, quer, quiser*, desej*, "
        "confirm*, aprov*, permiss*, suponh*, talvez, mais tarde, depois",
        "ou, opção, opções, alternativ*, escolh*, variante*, possí*, possib*, suger*, sugir*, recomend*, propo*, "
        "ambos, ambas",
        "exemplo*, ex, amostra*, modelo*, sintaxe, format*, esquema*, parec*, típic*, fictíci*, como este, "
        "como isto, habitual*, assim se",
        "contém, continha, conteúdo é, diz, dizia, disse, escreveu, escrito*, escrita*, document*, manual, "
        "tutorial*, cita*, segundo, devolv*, retorn*, imprim*, saída, registro*, anterior*, antes, já, executad*, "
        "executei, executou, chamado, chamei, usad*, usei, usou, enviad*, recebid*, mostra, mostrou, mostrad*, "
        "definid*, signific*, explic*, descr*, esperad*, respost*, respond*",
    ),
    Words(
        "Italian",
        "non, mai, nessun*, né, senza, evit*, sbagliat*, errat*, pericolos*, vietat*, ignor*, attenzione, invece, "
        "anziché, malevol*",
        "se, qualora, salvo, quando, finché, potrebbe*, potrei, potresti, dovrebbe*, dovrei, sarebbe*, posso, può, "
        "puoi, possono, vuoi, vuole, volete, vorrei, desider*, conferm*, approv*, permess*, suppon*, forse, "
        "più tardi",
        "oppure, o questo, o così, opzion*, alternativ*, scegli*, scelta, scelte, variante*, possib*, sugger*, "
        "consigli*, "
        "propon*, proposta, entrambi",
        "esempio, esempi, es, p.es, campion*, modell*, sintassi, formato, formati, schema, schemi, sembra*, "
        "tipic*, fittizi*, come questo, così si, solit*",
        "contiene, conteneva, contenuto è, dice, diceva, scrisse, scritto, scritta, document*, manuale, tutorial, "
        "cita*, secondo, restitui*, stampa*, uscita, registro, precedent*, già, eseguit*, chiamato, usat*, "
        "inviat*, ricevut*, mostra, mostrato, definit*, signific*, spieg*, descri*, previst*, rispost*, rispond*",
    ),
    Words(
        "Russian",
        "не, нет, никогда, ни, без, нельзя, избег*, неправильн*, неверн*, опасн*, запрещ*, игнор*, вместо, вредонос*",
        "если, кроме, когда, пока, бы, мог, могу, могла, могли, может*, можете, можно, следует, нужно ли, хотите, "
        "хочешь, хотел*, желае*, подтверд*, разреш*, предполож*, допустим, позже, возможно, ли",
        "или, либо, вариант*, альтернатив*, выбор*, выбер*, выбра*, опци*, предлаг*, предлож*, рекоменд*, оба, обе",
        "пример*, например, образец, образц*, шаблон*, синтаксис*, формат*, схем*, выгляд*, типичн*, обычн*, вот так",
        "содерж*, говор*, сказа*, написал*, написан*, писал*, документ*, руководств*, цитат*, цитир*, согласно, "
        "верн*, возвра*, вывод*, вывел*, журнал*, ранее, раньше, уже, прежде, предыдущ*, выполнил*, вызвал*, "
        "вызывал*, использовал*, запускал*, запустил*, отправил*, получил*, показан*, показыва*, определен*, "
        "определён*, означа*, объясн*, описа*, описыв*, ожида*, ответ*",
    ),
    Words(
        "Chinese",
        "不, 没, 無, 无, 别, 勿, 未, 并非, 禁止, 避免, 错误, 錯誤, 危险, 危險, 忽略, 而不是, 警告",
        "如果, 若, 假如, 假设, 除非, 当你, 当您, 當你, 當您, 可以, 可能, 应该, 應該, 能够, 能夠, 想要, 是否, "
        "请确认, 請確認, 允许, 允許, 稍后, 稍後, 之后再, 需要我, 要我, 您可, 你可, 或许, 或許, 吗, 嗎, 呢",
        "或, 还是, 還是, 选项, 選項, 选择, 選擇, 方案, 备选, 備選, 建议, 建議, 推荐, 推薦",
        "例, 比如, 譬如, 示范, 示範, 样本, 樣本, 模板, 格式, 语法, 語法, 这样的, 這樣的, 形如, 类似, 類似, 像这样, "
        "像這樣, 通常, 一般",
        "包含, 内容是, 内容为, 内容如下, 內容是, 內容為, 內容如下, 写着, 寫著, 说明, 說明, 文档, 文檔, 文件里, "
        "文件中, 手册, 手冊, 教程, 引用, 根据, 根據, 返回, 输出, 輸出, 打印, 日志, 日誌, 之前, 以前, 已经, 已經, "
        "已执行, 已執行, 执行了, 調用了, 调用了, 使用了, 用过, 显示, 顯示, 定义, 定義, 表示, 意思, 解释, 解釋, "
        "描述, 预期, 預期, 回答, 说过, 所述",
        is_spaced=False,
    ),
    Words(
        "Japanese",
        "ない, ません, なく, せず, 禁止, 避け, 誤っ, 間違, 危険, 無視, 代わりに, 警告",
        "もし, なら, たら, れば, 場合, できます, 可能, べき, かもしれ, ましょうか, ですか, ますか, "
        "確認してください, 許可, 後で, 必要があ, よろしけ",
        "または, あるいは, もしくは, それとも, 選択, オプション, 候補, 提案, おすすめ, 推奨",
        "例, サンプル, 見本, 形式, フォーマット, 構文, テンプレート, のような, このように, 通常, 一般",
        "含ま, 内容は, 書い, 書か, と言, ドキュメント, 文書, マニュアル, 説明, 引用, によると, 返し, 返さ, 出力, "
        "ログ, 以前, すでに, 既に, 実行しました, 呼び出しました, 使いました, 使用しました, 表示され, 定義, 意味, "
        "期待, 回答, 返答",
        is_spaced=False,
    ),
    Words(
        "Korean",
        "않, 안 , 못, 없, 말고, 마세요, 금지, 피하, 잘못, 위험, 무시, 대신, 경고",
        "만약, 면 , 라면, 경우, 수 있, 해야, 할까, 까요, 나요, 원하, 승인, 허락, 나중, 아마",
        "또는, 혹은, 아니면, 옵션, 선택, 대안, 후보, 제안, 추천",
        "예를, 예시, 예:, 샘플, 형식, 문법, 템플릿, 이렇게, 같은, 보통, 일반",
        "포함, 내용은, 적혀, 쓰여, 말했, 문서, 설명, 인용, 따르면, 반환, 출력, 로그, 이전, 이미, 실행했, 호출했, "
        "사용했, 표시된, 정의, 의미, 예상, 답변, 응답",
        is_spaced=False,
    ),
)
"""The rows. All of them count for every text, as its language is not known."""


@cache
def doubtful_words() -> re.Pattern[str]:
    """A pattern that finds the words in a text of one case."""
    spaced = sorted({word for row in WORDS if row.is_spaced for word in row.all})
    others = sorted({word for row in WORDS if not row.is_spaced for word in row.all})
    whole = "|".join(map(_whole, spaced))
    return re.compile(rf"(?<!\w)(?:{whole})|{'|'.join(map(re.escape, others))}")


def _whole(word: str) -> str:
    """A pattern for a whole word; an apostrophe (`n'`) is its own end."""
    pattern = re.escape(word).replace(r"\*", r"\w*").replace(r"\ ", r"\s+")
    return pattern if word.endswith("'") else rf"{pattern}(?!\w)"
