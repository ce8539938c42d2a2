"""Which site at a node may take part: what is checked when it introduces itself."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedce.base.errors import ReplyError
from fedce.base.identity import is_signed
from fedce.site.wire import MemberForm, Signed

if TYPE_CHECKING:
    from fedce.engines.remote import Known, Rules


def key_of(site: str, known: "Mapping[str, Known]", rules: "Rules") -> str:
    """The key of a site that has joined, or that the experiment states; empty: any key may join."""
    return known[site].key if site in known else rules.members.get(site, "")


def check_author(form: MemberForm, signed: Signed, nonce: str, rules: "Rules") -> None:
    """The answer is to our question, by the key that it shows, for a name that may take part."""
    if not is_signed(signed.content, signed.signature, form.key):
        raise ReplyError("it does not hold the key that it shows")
    if (form.run, form.nonce) != (rules.run, nonce):
        raise ReplyError("its answer belongs to another question")
    if rules.members and form.name not in rules.members:
        raise ReplyError(f"{form.name!r} is not among the members")


def check_member(form: MemberForm, known: "Mapping[str, Known]", rules: "Rules", n_channels: int) -> None:
    """The site is the one that it was, may still take part, and has data that fit the experiment and the others."""
    before, its = known.get(form.name), form.member
    if (expected := key_of(form.name, known, rules)) and form.key != expected:
        whose = f"member {form.name!r}" if rules.members.get(form.name) else f"site {form.name!r} that joined before"
        raise ReplyError(f"it has another key than the {whose}")
    if (version := form.versions.get("fedce")) != rules.version:
        raise ReplyError(f"it runs fedce {version}, the server {rules.version}; all need the same")
    if before is not None and before.gone:
        raise ReplyError(f"{form.name!r} may no longer take part: {before.gone}")
    if before is not None and form.fingerprint != before.member.fingerprint:
        raise ReplyError("its data differ from those it joined with; restore them, or start a new run")
    if n_channels and form.shape[0] > n_channels:
        raise ReplyError(f"its images have {form.shape[0]} channels, the network takes {n_channels}")
    if unknown := sorted(set(its.labelled) - its.classes.keys()):
        raise ReplyError(f"it labels {unknown[0]!r}, which is not among its classes {', '.join(its.classes)}")
    # Their order counts too: it is that of the network's outputs.
    if rules.classes is not None and list(its.classes.items()) != list(rules.classes.items()):
        raise ReplyError(f"its classes are {its.classes}, the experiment's {rules.classes}")
    if rules.size is not None and its.shape[1:] != (rules.size, rules.size):
        raise ReplyError(f"its images are {its.shape[2]}x{its.shape[1]}, and data.size is {rules.size}")
    if (first := next(iter(known.values()), None)) is not None:
        ours = first.member
        if ours.shape[1:] != its.shape[1:]:
            raise ReplyError(
                f"its images are {its.shape[2]}x{its.shape[1]}, those of {ours.name!r} "
                f"{ours.shape[2]}x{ours.shape[1]}; set data.size"
            )
        if list(ours.classes.items()) != list(its.classes.items()):
            raise ReplyError(f"its classes are {its.classes}, those of {ours.name!r} {ours.classes}")
