#!/usr/bin/env python3
"""Man pages and completion for bash and zsh, made of what the programs print with -h.

help_pages.py BIN SHARE VERSION      BIN: the folder with the programs; SHARE: below it man, bash-completion and zsh
"""

import gzip
import os
import pathlib
import re
import subprocess
import sys
import typing

COMPLETION = """\
# Made of what `{program} -h` prints.
_{function}() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} command={program} words=
  case ${{COMP_WORDS[1]}} in
{commands}
  esac
  case $command$before in
{choices}
  esac
  if [ -z "$words" ]; then
    case $command in
{options}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _{function} {program}
"""

# Read once: `complete` in bash's file then has itself called.
COMPLETION_OF_ZSH = """\
#compdef {program}
# zsh has a reader of what is bash's.
autoload -Uz bashcompinit && bashcompinit
source ${{${{funcsourcetrace[1]%:*}}:A:h:h:h}}/bash-completion/completions/{program}
_bash_complete -o default -F _{function}
"""


class Entry(typing.NamedTuple):
    names: list  # of an option; or the one of a positional or subcommand
    kind: str  # what follows it in its first line
    text: str


class Page(typing.NamedTuple):
    about: str
    example: str
    usage: str
    sections: dict  # heading: entries


def printed(command):
    # Defaults below a home folder are everybody's.
    return subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "HOME": "~"}).stdout


def page_of(command):
    """What a command prints with -h, in its parts."""
    about, example, usage, sections, entries = [], "", "", {}, None
    for line in printed([*command, "-h"]).splitlines():
        if line.startswith("Usage: "):
            usage = line[7:]
        elif line.startswith("Example: "):
            example = line[9:]
        elif re.fullmatch(r"\w+:", line):
            entries = sections.setdefault(line[:-1], [])
        elif entries is None:
            about.append(line)
        elif found := re.match(r"  (\S+)(?: (\S.*?))?(?:  +(.*))?$", line):
            name, kind, text = found.groups("")
            entries.append(Entry(name.split(","), kind, text))
        elif line.strip() and not line.strip().startswith("Example: "):
            entries[-1] = entries[-1]._replace(text=f"{entries[-1].text} {line.strip()}".strip())
    return Page(" ".join(about).strip(), example, usage, sections)


def escaped(text):
    return re.sub(r"^([.'])", r"\\&\1", text.replace("\\", "\\e").replace("-", "\\-"), flags=re.M)


def manual(command, page, version, others):
    name = "-".join(command)
    lines = [f'.TH {name.upper()} 1 "" "parcae {version}" "Parcae"', ".SH NAME",
             f"{name} \\- {escaped(page.about.rstrip('.'))}", ".SH SYNOPSIS", escaped(page.usage)]
    for heading, entries in page.sections.items():
        lines.append(f".SH {heading.upper()}")
        for x in entries:
            what = f"\\fB{escaped(', '.join(x.names))}\\fR {escaped(x.kind)}".strip()
            lines += [".TP", what, escaped(x.text) or "\\&"]
    if page.example:
        lines += [".SH EXAMPLE", ".nf", escaped(page.example), ".fi"]
    lines += [".SH SEE ALSO", ", ".join(f"\\fB{escaped(x)}\\fR(1)" for x in others if x != name),
              ".PP", "/usr/share/doc/parcae/README.md"]
    return "\n".join(lines) + "\n"


def completion(program, pages):
    """pages: of the program itself (None), and of its subcommands."""
    def indented(lines, by):
        return "\n".join(" " * by + x for x in lines)

    commands = [x for x in pages if x]
    options, choices = [], []
    for command, page in pages.items():
        label = command or program
        words = [n for x in page.sections["Options"] for n in x.names] + (commands if not command else [])
        options.append(f'{label}) words="{" ".join(words)}" ;;')
        for x in page.sections["Options"]:
            if found := re.search(r"\{([^}]+)\}", x.kind):
                choices.append(f'{label}{x.names[-1]}) words="{found[1].replace(",", " ")}" ;;')
    return COMPLETION.format(program=program, function=program.replace("-", "_"),
                             commands=indented([f"{'|'.join(commands) or '-'}) command=${{COMP_WORDS[1]}} ;;"], 4),
                             choices=indented(choices, 4), options=indented(options, 6))


def main(bin_folder, share, version):
    man, bash, zsh = share / "man/man1", share / "bash-completion/completions", share / "zsh/vendor-completions"
    for folder in (man, bash, zsh):
        folder.mkdir(parents=True, exist_ok=True)
    programs = {}
    for program in ("parcae", "parcae-node"):
        own = page_of([bin_folder / program])
        commands = [x.names[0] for x in own.sections.get("Subcommands", [])]
        programs[program] = {None: own, **{x: page_of([bin_folder / program, x]) for x in commands}}
        (bash / program).write_text(completion(program, programs[program]))
        function = program.replace("-", "_")
        (zsh / f"_{program}").write_text(COMPLETION_OF_ZSH.format(program=program, function=function))
    names = ["-".join(filter(None, (p, x))) for p, pages in programs.items() for x in pages]
    for program, pages in programs.items():
        for command, page in pages.items():
            words = [program] + ([command] if command else [])
            path = man / f"{'-'.join(words)}.1.gz"
            path.write_bytes(gzip.compress(manual(words, page, version, names).encode(), mtime=0))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3])
