"""What cannot be exported is said in one line: which module, where in its source, why, and what to do."""

import contextlib
import inspect
import io
import logging
import os
import re

import torch

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep


class CannotExport(Exception):
    """One line for people."""


def shortened(path):
    """Of a path as much as says which file it is: from the package on, or the last two parts."""
    parts = path.replace(os.sep, "/").split("/")
    for folder in ("site-packages", "dist-packages"):
        if folder in parts:
            return "/".join(parts[parts.index(folder) + 1:])
    return "/".join(parts[-2:])


def _is_users(path):
    return not path.startswith(_TORCH) and not path.startswith("<") and "/torch/fx/" not in path


def line_in(stack_trace):
    """The innermost line of a stack trace's text that is not PyTorch's own: "mixer.py:12"."""
    found = [x for x in re.findall(r'File "([^"]+)", line (\d+)', stack_trace or "") if _is_users(x[0])]
    return f"{shortened(found[-1][0])}:{found[-1][1]}" if found else ""


def place_of_exception(error):
    """Where in the user's source an exception arose ("": nowhere), and the module whose method that is, or None."""
    place, module, at = "", None, error.__traceback__
    while at:
        code = at.tb_frame.f_code
        if _is_users(code.co_filename) and not code.co_filename.startswith(_OWN):
            place = f"{shortened(code.co_filename)}:{at.tb_lineno}"
            module = at.tb_frame.f_locals.get(code.co_varnames[0]) if code.co_argcount > 0 else None
        at = at.tb_next
    return place, module if isinstance(module, torch.nn.Module) else None


def line_of_forward(module):
    """Where a module's forward begins."""
    try:
        function = type(module).forward
        return f"{shortened(inspect.getsourcefile(function))}:{inspect.getsourcelines(function)[1]}"
    except (OSError, TypeError):
        return ""


def refuse(path, place, why):
    raise CannotExport(f"{path}{f' ({place})' if place else ''}: {why}")


def first_line(error):
    text = next((x.strip() for x in str(error).splitlines() if x.strip()), type(error).__name__)
    return text[:300]


@contextlib.contextmanager
def quiet():
    """PyTorch's exporter writes pages about what the exception says, too."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)
