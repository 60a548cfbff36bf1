# SPDX-License-Identifier: Apache-2.0
"""The types that another tool accepts in place of others, by the rules in :mod:`shmarrow.types.consumers`.

Invariants:

* the result depends on the type alone: every batch of a file gets the same schema, which is known without data;
* no value changes unless the caller names its kind of type in ``lossy``: other casts are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from difflib import get_close_matches
from typing import Any, NamedTuple

from shmarrow.errors import InvalidArgument, Unsupported, at, not_expected, shown
from shmarrow.types import nested, primitive
from shmarrow.types.base import DataType
from shmarrow.types.consumers import CONSUMERS, KINDS, LOSSY, RULES, Consumer, Rule, kind_of
from shmarrow.types.extension import ExtensionType, storage_of, types_in


class Stages(NamedTuple):
    """The stages of a type: after checked casts, after lossy casts, and the final type."""

    checked: DataType
    loosened: DataType
    final: DataType

    def map(self, function: Callable[[Any], DataType]) -> Stages:
        return Stages(*map(function, self))


class Casting(NamedTuple):
    """A consumer, and the kinds of types whose values may change."""

    name: str
    consumer: Consumer
    lossy: frozenset[str]

    def allows(self, kind: str) -> bool:
        return "all" in self.lossy or kind in self.lossy

    def stages(self, type: Any, inside: bool = False) -> Stages:
        """Return the stages of a type, which may be nested in another.

        Raises
        ------
        Unsupported
            If the consumer has no type for it, or only a lossy one that the caller did not allow.
        """
        if isinstance(type, ExtensionType):
            accepted = type.extension_name in self.consumer.extensions
            if accepted and (self.consumer.nested_extensions or not inside):
                return Stages(type, type, type)
            if type.extension_name == "arrow.bool8":
                return Stages(*[primitive.bool_()] * 3)
            return self.stages(type.storage_type, inside)
        if self.consumer.unique_names and type.layout == "struct":
            self.check_names([field.name for field in type.fields], "field")
        before = self._children(type)
        kind = kind_of(type)
        rules = [rule for rule in RULES[self.name].get(kind, ()) if rule.inside <= inside and rule.when(before.final)]
        if not rules:
            return before
        allowed = self.allows(kind)
        rule = next((each for each in rules if allowed or not each.lossy), None)
        if rule is None or rule.becomes is None:
            raise self._unsupported(type, kind, rules)
        become, through = rule.becomes, rule.through or rule.becomes
        if not rule.loses:
            return before.map(become)
        checked = before.checked if allowed else through(before.checked)
        return Stages(checked, through(before.loosened), become(before.final))

    def _children(self, type: Any) -> Stages:
        """Return the stages of a type from those of its children."""
        if type.layout == "dictionary":
            values = self.stages(type.value_type, True)
            return values.map(lambda value: nested.dictionary(type.index_type, value, type.ordered))
        if not type.fields:
            return Stages(type, type, type)
        parts = []
        for i, field in enumerate(type.fields):
            with at("field", field.name) if len(type.fields) > 1 else nullcontext():
                entries = type.layout == "map" and i == 0
                stages = self._children(field.type) if entries else self.stages(field.type, True)
            parts.append([field.with_type(each) for each in stages])
        parameters = {each.name: getattr(type, each.name) for each in type.descriptor.parameters}
        types = [type.descriptor.make(parameters, children) for children in zip(*parts, strict=True)]
        return Stages(*[type if each == type else each for each in types])

    def _unsupported(self, type: Any, kind: str, rules: list[Rule]) -> Unsupported:
        losing = next((rule for rule in rules if rule.lossy), None)
        hint = losing and f"lossy={kind!r} makes it {losing.shown}, without {losing.loses}"
        return Unsupported(f"{self.consumer.title} has no type for {type}", hint=hint)

    def check_names(self, names: list[str], what: str) -> None:
        """Reject duplicate names."""
        if len(set(names)) < len(names):
            name = next(name for i, name in enumerate(names) if name in names[:i])
            raise Unsupported(
                f"{self.consumer.title} requires a unique name for each {what}, found {shown(name)} more than once"
            )

    def schema(self, schema: Any) -> list[Stages]:
        """Return the target types of the columns."""
        if self.consumer.unique_names:
            self.check_names(schema.names, "column")
        if self.consumer.some_column and not len(schema):
            raise Unsupported(f"{self.consumer.title} has no tables without columns")
        by_type: dict[DataType, Stages] = {}
        for field in schema:
            if field.type not in by_type:
                with at("column", field.name):
                    by_type[field.type] = self.stages(field.type)
        return [by_type[field.type] for field in schema]

    def hint(self, type: DataType) -> str | None:
        inner_kinds = {kind_of(storage_of(each)) for each in types_in(type)}
        kinds = sorted(kind for kind in inner_kinds if kind in LOSSY[self.name] and not self.allows(kind))
        return "; ".join([f"lossy={kind!r} drops {LOSSY[self.name][kind]}" for kind in kinds]) or None


def casting_for(name: str, lossy: str | Iterable[str]) -> Casting:
    """Return the rules of a consumer by name, with the kinds of types whose values may change."""
    if not isinstance(name, str):
        raise not_expected("the name of a consumer", name)
    argument, name = name, name.lower()
    if name not in CONSUMERS:
        raise InvalidArgument(f"expected one of {', '.join(CONSUMERS)}, found {shown(argument)}")
    try:
        chosen = frozenset([lossy] if isinstance(lossy, str) else lossy)
    except TypeError:
        raise not_expected("'all', or kinds of types such as 'timestamp'", lossy) from None
    for kind in chosen - {"all"} - set(LOSSY[name]):
        raise _nothing_lost(name, kind)
    return Casting(name, CONSUMERS[name], chosen)


def _nothing_lost(name: str, kind: Any) -> InvalidArgument:
    """Return the error for a kind in ``lossy`` that never loses anything."""
    kinds = sorted(LOSSY[name])
    expected = f"expected 'all', or one or more of {', '.join(kinds)}" if kinds else "leave lossy out"
    if kind in KINDS:
        return InvalidArgument(
            f"lossy={shown(kind)}: {CONSUMERS[name].title} accepts it without loss, or not at all; {expected}"
        )
    close = get_close_matches(str(kind)[:40], kinds, 1)
    hint = f"did you mean {close[0]!r}?" if close else expected
    return InvalidArgument(f"lossy={shown(kind)}: no kind of type has that name", hint=hint)
