"""Texts with calls without marks: those that are calls (rescues), and those that are text (refusals).

`@` stands for the form. Every text is tried with every form of `FORMS`. `python -m tests.healing.rescue_corpus` prints
how many rescues of the old rule become text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from penstock import Finish, Text, ToolCall
from penstock.dialects.rescue import LEAKS
from penstock.dialects.stage import TextCalls
from penstock.healing.rescued import RESCUED

TOOL = "bash"
ARGUMENTS: dict[str, Any] = {"command": "ls -la"}
_CALL = json.dumps({"name": TOOL, "arguments": ARGUMENTS})

FORMS = {
    "object": _CALL,
    "object over several lines": json.dumps({"name": TOOL, "arguments": ARGUMENTS}, indent=2),
    "object with parameters": json.dumps({"name": TOOL, "parameters": ARGUMENTS}),
    "object with tool": json.dumps({"tool": TOOL, "parameters": ARGUMENTS}),
    "object with function": json.dumps({"function": TOOL, "arguments": ARGUMENTS}),
    "function object": json.dumps({"function": {"name": TOOL, "arguments": ARGUMENTS}}),
    "OpenAI call": json.dumps(
        {"id": "call_1", "type": "function", "function": {"name": TOOL, "arguments": json.dumps(ARGUMENTS)}}
    ),
    "Anthropic call": json.dumps({"type": "tool_use", "id": "toolu_1", "name": TOOL, "input": ARGUMENTS}),
    "list in an object": json.dumps({"tool_calls": [{"name": TOOL, "arguments": ARGUMENTS}]}),
    "array": f"[{_CALL}]",
    "JSON fence": f"```json\n{_CALL}\n```",
    "fence without a language": f"```\n{_CALL}\n```",
    "tool_code": '```tool_code\nprint(default_api.bash(command="ls -la"))\n```',
    "Python list": '[bash(command="ls -la")]',
    "elements": "<bash>\n<command>ls -la</command>\n</bash>",
    "arguments first": json.dumps({"arguments": ARGUMENTS, "name": TOOL}),
    "name in another case": json.dumps({"name": "Bash", "arguments": ARGUMENTS}),
}
"""The ways to write the call."""

RESCUES: dict[str, list[str]] = {
    "nothing before": ["@", "\n\n@", "  @", "@\n", "@\n\n\n", "\n@  \n", "@<|im_end|>", "@</s>", "@\n<|eot_id|>\n"],
    "several": ["@\n@", "@\n\n@\n", "@,\n@", "@;\n@", "Let me look at both.\n@\n@", "I list them:\n\n@\n\n@\n\n@"],
    "English": [
        "Let me look.\n@", "Let me look:\n@", "Let me look…\n@", "I'll list the files.\n@", "I'll list the files:\n\n@",
        "I will use the bash tool.\n@", "I will now run the command.\n\n@", "Listing the directory.\n@",
        "Sure, I'll do that.\n@", "OK.\n@", "First, let me see the files in the project:\n@", "Calling bash:\n@",
        "Let me check the working directory and its files.\n@", "Running the command now.\n@\n",
        "I need to see what is in this directory.\n@", "Next, I look at the source files:\n@", "Done thinking.\n@",
        "Now I'll run the tests.\n@", "Great. I'll start by listing everything here:\n@", "Working on it…\n@",
        "To find the file, I'll list the directory.\n@", "**Running:**\n@", "Let me find the bug.\n@\n",
        "I'm going to list all the files of the repository, and then look at the largest of them.\n@",
        "The build is broken.\nLet me look at the files first:\n@", "I'll use `bash` here:\n@", "Tool call:\n@",
        "Here is the call:\n@", "Executing.\n@", "I am checking the directory...\n@", "Let's see the files.\n@",
        "Let me read the contents of the directory.\n@", "Understood. Starting with a listing.\n@",
    ],
    "German": [
        "Ich schaue nach.\n@", "Ich liste die Dateien auf:\n@", "Ich sehe mir das Verzeichnis an.\n\n@",
        "Gut, ich führe den Befehl aus.\n@", "Zuerst sehe ich die Dateien durch:\n@", "Einen Moment…\n@",
        "Ich rufe jetzt das Werkzeug auf.\n@", "Als Nächstes prüfe ich den Ordner:\n@", "Los geht's.\n@",
        "Ich lese den Inhalt des Ordners.\n@", "Alles klar. Ich beginne mit der Liste:\n@", "Aufruf:\n@",
    ],
    "French": [
        "Je regarde.\n@", "Je vais lister les fichiers :\n@", "Je vais afficher le contenu du dossier :\n@",
        "D'accord, je lance la commande.\n@", "Voici l'appel :\n@", "Un instant…\n@",
        "Je commence par les fichiers du projet.\n\n@", "J'examine le répertoire.\n@", "Bien. Je liste tout :\n@",
        "Tout d'abord, je cherche les sources.\n@", "J'utilise l'outil bash.\n@",
    ],
    "Spanish": [
        "Voy a mirar.\n@", "Voy a listar los archivos:\n@", "Voy a ver el contenido de la carpeta:\n@",
        "De acuerdo, ejecuto el comando.\n@", "Un momento…\n@", "Primero miro los archivos del proyecto.\n\n@",
        "Uso la herramienta bash.\n@", "Aquí va la llamada:\n@", "Empiezo con la lista:\n@", "Busco los archivos.\n@",
    ],
    "Portuguese": [
        "Vou olhar.\n@", "Vou listar os arquivos:\n@", "Vou ver o conteúdo da pasta:\n@",
        "Certo, executo o comando.\n@",
        "Um momento…\n@", "Primeiro olho os arquivos do projeto.\n\n@", "Uso a ferramenta bash.\n@",
        "Aqui vai a chamada:\n@",
    ],
    "Italian": [
        "Guardo subito.\n@", "Elenco i file:\n@", "Leggo il contenuto della cartella:\n@",
        "Va bene, eseguo il comando.\n@",
        "Un momento…\n@", "Prima guardo i file del progetto.\n\n@", "Uso lo strumento bash.\n@", "Ecco la chiamata:\n@",
    ],
    "Russian": [
        "Сейчас посмотрю.\n@", "Я получу список файлов:\n@", "Смотрю папку, начинаю.\n@",
        "Хорошо, выполняю команду.\n@", "Одну секунду…\n@", "Сначала посмотрю файлы проекта.\n\n@",
        "Использую инструмент bash.\n@", "Вот вызов:\n@", "Запускаю команду:\n@", "Ищу файлы.\n@",
    ],
    "Chinese": [
        "我来看一下。\n@", "我先列出文件：\n@", "让我查看当前目录：\n@", "好的，我来执行命令。\n@", "稍等…\n@",
        "首先查看项目的文件。\n\n@", "我将使用 bash 工具。\n@", "现在查看文件内容：\n@", "我需要了解目录结构：\n@",
        "正在列出文件。\n@",
    ],
    "Japanese": [
        "ファイルを確認します。\n@", "まず、ファイルを一覧します：\n@", "わかりました。コマンドを実行します。\n@",
        "少々お待ちを…\n@",
        "ディレクトリを調べます。\n\n@", "bash ツールを使います。\n@", "ファイルの内容を見ます。\n@",
    ],
    "Korean": [
        "파일을 확인하겠습니다.\n@", "먼저 파일 목록을 봅니다:\n@", "알겠습니다. 명령을 실행합니다.\n@", "잠시만요…\n@",
        "디렉터리를 살펴봅니다.\n\n@", "bash 도구를 씁니다.\n@",
    ],
}  # fmt: skip
"""Texts whose forms are calls, by language."""

REFUSALS: dict[str, list[str]] = {
    "question": [
        "Shall I run @?", "Shall I run this?\n@", "Do you want me to run this:\n@", "Is this what you mean?\n\n@",
        "Let me look:\n@\nShall I go on?", "I have this in mind:\n@\nOK?", "Ready? Here it comes:\n@",
        "Soll ich das ausführen?\n@", "Ich würde das ausführen:\n@\nIst das in Ordnung?", "Dois-je lancer ceci ?\n@",
        "Je propose :\n@\nD'accord ?", "¿Ejecuto esto?\n@", "Ejecuto:\n@\n¿Está bien?", "Devo executar isto?\n@",
        "Posso eseguire questo?\n@", "Мне выполнить это?\n@", "Выполняю:\n@\nПродолжать?", "要我执行这个吗？\n@",
        "我来执行：\n@\n可以吗？", "これを実行しますか？\n@", "実行します：\n@\nよろしいですか？",
        "이것을 실행할까요?\n@",
    ],
    "negation": [
        "Never run the following:\n@", "Do not run this:\n@", "Don't call this.\n@", "I will not run this:\n@",
        "You should never send this call:\n@", "I cannot run the following.\n@", "Avoid this call:\n@",
        "This call is wrong:\n@", "I refuse to run this.\n@", "Nobody asked for it, so I won't run it:\n@",
        "Let me do something else instead of this:\n@", "This would be dangerous:\n@", "It isn’t safe to run this:\n@",
        "Führe das niemals aus:\n@", "Ich führe das nicht aus.\n@", "Das ist gefährlich:\n@",
        "Kein Aufruf wie dieser:\n@",
        "N'exécutez jamais ceci :\n@", "Je ne lance pas cet appel.\n@", "Il faut éviter ceci :\n@",
        "Nunca ejecutes esto:\n@", "No voy a ejecutar esto.\n@", "Es peligroso:\n@", "Nunca execute isto:\n@",
        "Não vou executar isto.\n@", "Non eseguire mai questo:\n@", "Non lo eseguo.\n@",
        "Никогда не выполняйте это:\n@",
        "Я не буду это выполнять.\n@", "不要运行以下命令：\n@", "我不会执行这个。\n@", "これは実行しません。\n@",
        "次を実行しないで：\n@", "이것을 실행하지 마세요.\n@", "실행하면 안 됩니다.\n@",
    ],
    "condition": [
        "If the tests fail, run this:\n@", "When you are ready, run this.\n@", "I would run this:\n@",
        "I could run:\n@",
        "You can run this:\n@", "Once you confirm, I'll run this:\n@", "Unless you object, I run this.\n@",
        "You might want this:\n@", "Assuming that the file exists:\n@", "Let me know before I run this:\n@",
        "Wenn die Tests scheitern, dann dies:\n@", "Ich könnte das ausführen:\n@", "Falls nötig:\n@",
        "Si les tests échouent :\n@", "Je pourrais lancer ceci :\n@", "Si quieres, ejecuto esto:\n@",
        "Podría ejecutar:\n@",
        "Se quiser, executo isto:\n@", "Se vuoi, eseguo questo:\n@", "Если хотите, я выполню это:\n@",
        "Я мог бы выполнить:\n@", "如果需要，我可以运行：\n@", "必要であればこれを実行します：\n@",
        "원하시면 실행합니다:\n@",
    ],
    "option": [
        "Option 1:\n@\nOption 2:\n@", "Option 1:\n@\nOption 2:\n@\nWhich one do you want?", "1. @\n2. @", "- @\n- @",
        "@\nor\n@", "@\nand then\n@", "Either this one:\n@", "A:\n@\nB:\n@", "There are two options:\n@\n@",
        "One alternative:\n@", "I suggest this:\n@", "(1)\n@\n(2)\n@", "@ 1 @", "Pick one:\n@\n@", "@\n2.\n@",
        "Entweder dies:\n@\noder dies:\n@", "Variante A:\n@", "Eine Möglichkeit:\n@", "Soit ceci :\n@\nsoit cela :\n@",
        "Option A :\n@", "Opción 1:\n@\nOpción 2:\n@", "O bien esto:\n@", "Opção 1:\n@\nOpção 2:\n@",
        "Opzione 1:\n@\nOpzione 2:\n@", "Вариант 1:\n@\nВариант 2:\n@", "Либо так:\n@", "方案一：\n@\n方案二：\n@",
        "或者这样：\n@", "選択肢：\n@", "옵션 1:\n@\n옵션 2:\n@",
    ],
    "example": [
        "For example:\n@", "A call would look like this:\n@", "Here is an example of a call:\n@", "Example.\n@",
        "The syntax is as follows:\n@", "The format of a call:\n@", "Tools are called like this:\n@",
        "A typical call:\n@", "A sample:\n@\nThat is all.", "Imagine this:\n@", "Zum Beispiel:\n@",
        "Ein Aufruf sieht so aus:\n@", "Die Syntax:\n@", "Par exemple :\n@", "Un appel ressemble à ceci :\n@",
        "Por ejemplo:\n@", "La sintaxis:\n@", "Por exemplo:\n@", "Per esempio:\n@", "Например:\n@",
        "Вызов выглядит так:\n@", "例如：\n@", "格式如下：\n@", "例えば：\n@", "예를 들어:\n@",
    ],
    "quotation": [
        "The mail says:\n@", "You wrote:\n@", "He said to run this:\n@", "> @", "> Run this:\n> @", '"@"', "“@”", "`@`",
        "The user asked for this:\n@", "I ran this call:\n@", "I already called it:\n@", "The tool returned:\n@",
        "The previous call:\n@", "According to the ticket:\n@", "In der Mail steht:\n@", "Ich habe das ausgeführt:\n@",
        "Le message dit :\n@", "J'ai déjà exécuté ceci :\n@", "El correo dice:\n@", "O texto diz:\n@",
        "Il messaggio dice:\n@", "В письме сказано:\n@", "邮件里写着：\n@", "メールにはこう書いてあります：\n@",
        "메일에 이렇게 적혀 있습니다:\n@",
    ],
    "file": [
        "The file tools.json contains:\n@", "The file reads:\n@", "Here is tools.json:\n\n@\n\nIt has one entry.",
        "# tools.json\n@", "tools.json:\n@\nand nothing else", "The log shows:\n@", "The output was:\n@",
        "Die Datei enthält:\n@", "Le fichier contient :\n@", "El archivo contiene:\n@", "O arquivo contém:\n@",
        "Il file contiene:\n@", "Файл содержит:\n@", "文件内容如下：\n@", "ファイルの内容は次のとおりです：\n@",
    ],
    "documentation": [
        "## Usage\n\n@", "The documentation describes it:\n@", "See the docs:\n@", "| call |\n|---|\n@",
        "Calls have this schema:\n@", "In the tutorial, this is the call:\n@", "It is defined as follows:\n@",
        "Laut Dokumentation:\n@", "D'après la documentation :\n@", "Según la documentación:\n@",
        "Согласно документации:\n@",
        "根据文档：\n@", "ドキュメントによると：\n@",
    ],
    "place": [
        "I run @", "I run @ now.", "I run: @", "@ is the call.", "@ done", "@.", "@\nDone.", "@\n\nI hope this helps!",
        "@\n---", "Sure!\n@", "Here goes\n@", "First paragraph.\n\nSecond paragraph.\n@", "- I list the files:\n@",
        "1. I list the files.\n@", "Look.\n@\nThen.\n@", "* @", "A list:\n* one\n@", "x = @", "Call @ and @.",
        "```text\n@", "~~~\n@\n~~~", "@\n\n<br>", "@\n// a comment", "@ @ and so on",
    ],
}  # fmt: skip
"""Texts whose forms are text, by what they are."""


class Share(NamedTuple):
    """How many of some texts became text."""

    texts: int
    total: int

    def __str__(self) -> str:
        return f"{self.texts} of {self.total} ({self.texts / max(self.total, 1):.1%})"


def share_of_rescues() -> tuple[Share, Share]:
    """How many rescues by the old rule become text: of the rescues, and of the refusals.

    The old rule took a JSON object or a fence for a call wherever it stood.
    """
    return _share(RESCUES), _share(REFUSALS)


def _share(corpus: dict[str, list[str]]) -> Share:
    written = [text.replace("@", form) for texts in corpus.values() for text in texts for form in FORMS.values()]
    old = [text for text in written if _has_call(text, OLD)]
    return Share(sum(not _has_call(text, RESCUED, unsettled=lambda name, why: None) for text in old), len(old))


def _has_call(text: str, dialects: Iterable[str], **options: Any) -> bool:
    stage = TextCalls(dialects, [TOOL], only_declared=True, **options)
    return any(isinstance(event, ToolCall) for event in (*stage.feed(Text(0, text)), *stage.feed(Finish("stop"))))


OLD = (*LEAKS, "md_json_fence", "bare_json")
"""The dialects that were searched for before."""


if __name__ == "__main__":
    honest, others = share_of_rescues()
    print(f"{sum(map(len, RESCUES.values()))} rescues, {sum(map(len, REFUSALS.values()))} refusals, {len(FORMS)} forms")  # noqa: T201
    print(f"rescues of the old rule that become text: {honest} of the rescues, {others} of the refusals")  # noqa: T201
