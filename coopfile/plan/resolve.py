"""Settings to plan. Pure: the same settings and access give the same plan, everywhere."""

from __future__ import annotations

from coopfile.plan.model import SECTIONS, Access, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from coopfile.language.merging import Settings


def resolve(settings: Settings, access: Access | None = None) -> Plan:
    """Build the plan whose leaves are the settings' values; ``access`` is who asks, if anyone is named."""
    sections: dict[str, Any] = {
        name: section(**{field: settings.value(f"{name}.{field}") for field in section._fields})
        for name, section in SECTIONS.items()
        if section is not Access
    }
    return Plan(**sections, env=settings.value("env"), access=access)
