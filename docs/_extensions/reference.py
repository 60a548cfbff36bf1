"""What the reference adds to autodoc: links from plain code such as ``sa.Store``, and attributes described once.

* Inline code in the guide that names a public object, such as ``sa.ipc.open_file``, becomes a link to its entry, so the
  Markdown sources need no roles.
* Types in signatures and parameter lists are written as in the code, ``Schema`` or ``shmarrow.types.schema.Schema``;
  they lead to the public entry.
* The section "Attributes" of a class describes its members: each text moves to the entry of its member.
* Only public classes are shown as bases.
* ``{entries} shmarrow.types`` lists names of a module, one per line: each gets its entry.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective

_CODE = re.compile(r"(?:sa|shmarrow)((?:\.\w+)+)(?:\(.*\))?")
_WORD = re.compile(r"\w+")
_FIELD = re.compile(r"Alias for field number \d+")
_MARKUP = re.compile(r"(?::[\w:]+:`|``)([^`]+)``?")
_TOP_LEVEL = frozenset({"class", "exception", "function", "data", "module"})


class Entries(SphinxDirective):
    """The entries of names in a module, by autodoc."""

    has_content = True
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the entries."""
        module = import_module(self.arguments[0])
        lines = ["```{eval-rst}", f".. currentmodule:: {module.__name__}", ""]
        lines += [f".. auto{_kind(getattr(module, name))}:: {name}\n" for name in self.content]
        return self.parse_text_to_nodes("\n".join([*lines, "```"]))


def _kind(value: Any) -> str:
    if not inspect.isclass(value):
        return "function"
    return "exception" if issubclass(value, BaseException) else "class"


class PublicNames(SphinxPostTransform):
    """Point references to the public entries; runs before references are resolved."""

    default_priority = 5

    def run(self, **arguments: Any) -> None:
        """Change one document."""
        objects = self.env.get_domain("py").data["objects"]
        short = self._short_names(objects)
        for node in list(self.document.findall(nodes.literal)):
            found = _CODE.fullmatch(node.astext())
            if found and "shmarrow" + found[1] in objects and not _inside_reference(node):
                node.replace_self(self._link("shmarrow" + found[1], node.deepcopy()))
        for node in list(self.document.findall(addnodes.pending_xref)):
            if node.get("refdomain") == "py" and _WORD.fullmatch(node["reftarget"]):
                self._settle(node, objects, short)
        for node in list(self.document.findall(nodes.paragraph)):
            if node.astext() == "Bases: object":
                node.parent.remove(node)

    def _short_names(self, objects: dict[str, Any]) -> dict[str, str]:
        """Public top-level names without their modules; those of the package itself win."""
        names: dict[str, str] = {}
        for full, entry in objects.items():
            if not entry.aliased and entry.objtype in _TOP_LEVEL:
                name = full.rpartition(".")[2]
                if full == f"shmarrow.{name}" or name not in names:
                    names[name] = full
        return names

    def _settle(self, node: addnodes.pending_xref, objects: dict[str, Any], short: dict[str, str]) -> None:
        """Decide where a name without dots leads, or that it is only a word."""
        name, module, cls = node["reftarget"], node.get("py:module"), node.get("py:class")
        here = [f"{module}.{cls}.{name}"] if cls and node["reftype"] in ("meth", "attr", "obj") else []
        for full in (*here, f"{module}.{name}", short.get(name)):
            if full in objects:
                node["reftarget"] = full
                break
        else:
            node.attributes.update({"py:module": None, "py:class": None})
        node.attributes.pop("refspecific", None)  # it would search all entries that end in this name

    def _link(self, target: str, content: nodes.Node) -> addnodes.pending_xref:
        return addnodes.pending_xref(
            "", content, refdomain="py", reftype="obj", reftarget=target, refdoc=self.env.docname, refwarn=False
        )


def _inside_reference(node: nodes.Node) -> bool:
    parent = node.parent
    while parent is not None:
        if isinstance(parent, (nodes.reference, addnodes.pending_xref, nodes.title, addnodes.desc_signature)):
            return True
        parent = parent.parent
    return False


class MemberTexts(SphinxTransform):
    """Give attributes without a docstring the text that their class has for them, or a base of it."""

    default_priority = 700

    def apply(self, **arguments: Any) -> None:
        """Change one document."""
        for desc in self.document.findall(addnodes.desc):
            if desc.get("domain") != "py" or desc.get("objtype") not in ("attribute", "property"):
                continue
            signature, content = desc[0], desc[-1]
            found = content.astext().strip()
            if not found or _FIELD.fullmatch(found):
                text = text_of(signature["module"], signature["fullname"])
                content[:] = [nodes.paragraph("", "", *inline(text))] if text else content.children


def text_of(module: str, name: str) -> str:
    """What the docstring of a class, or of a base of it, says of an attribute or of the parameter of that name."""
    *path, member = name.split(".")
    cls: Any = import_module(module)
    for each in path:
        cls = getattr(cls, each)
    for base in inspect.getmro(cls):
        lines = inspect.cleandoc(base.__doc__ or "").splitlines()
        for heading in ("Attributes", "Parameters"):
            text = split_section(lines, heading)[1].get(member)
            if text:
                return text
    return ""


def inline(text: str) -> list[nodes.Node]:
    """Text with code in double backticks or in a role, as nodes."""
    return [
        nodes.literal("", part.removeprefix("~").rpartition("~")[2]) if number % 2 else nodes.Text(part)
        for number, part in enumerate(_MARKUP.split(text))
    ]


def split_section(lines: list[str], heading: str) -> tuple[list[str], dict[str, str]]:
    """A numpy-style docstring without one of its sections, and the text of each name in that section."""
    starts = [i for i, line in enumerate(lines[:-1]) if line == heading and set(lines[i + 1]) == {"-"}]
    if not starts:
        return lines, {}
    start = starts[0]
    end = next(
        (i for i in range(start + 2, len(lines) - 1) if lines[i] and lines[i + 1] and set(lines[i + 1]) == {"-"}),
        len(lines),
    )
    found: dict[str, str] = {}
    names: list[str] = []
    for line in lines[start + 2 : end]:
        if line and not line.startswith(" "):
            names = line.partition(" : ")[0].split(", ")
        else:
            found.update({name: f"{found.get(name, '')} {line.strip()}".strip() for name in names})
    return lines[:start] + lines[end:], found


def drop_attributes(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Drop the section "Attributes" where each of them has an entry of its own."""
    if what in ("class", "exception"):
        rest, found = split_section(lines, "Attributes")
        if all(hasattr(obj, each) or each in _annotated(obj) for each in found):
            lines[:] = rest


def show_public_bases(app: Any, name: str, obj: Any, options: Any, bases: list[Any]) -> None:
    """Leave out internal bases, whose members are those of the class."""
    bases[:] = [base for base in bases if _is_public(base)] or [object]


def _is_public(base: Any) -> bool:
    cls = getattr(base, "__origin__", base)
    if not cls.__module__.startswith("shmarrow"):
        return cls.__module__ != "typing"
    areas = ("shmarrow", ".".join(cls.__module__.split(".")[:2]))
    return any(getattr(import_module(area), cls.__name__, None) is cls for area in areas)


def _annotated(obj: Any) -> set[str]:
    return {name for cls in inspect.getmro(obj) for name in inspect.get_annotations(cls)}


def setup(app: Any) -> dict[str, Any]:
    """Connect the hooks; the section is dropped before napoleon rewrites it."""
    app.add_directive("entries", Entries)
    app.add_post_transform(PublicNames)
    app.add_transform(MemberTexts)
    app.connect("autodoc-process-docstring", drop_attributes, priority=400)
    app.connect("autodoc-process-bases", show_public_bases)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
