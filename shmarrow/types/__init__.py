"""The data types of Arrow (columnar format, "Data Types"; Schema.fbs), fields and schemas."""

from shmarrow.types.base import *  # noqa: F403
from shmarrow.types.dtypes import *  # noqa: F403
from shmarrow.types.extension import *  # noqa: F403
from shmarrow.types.field import *  # noqa: F403
from shmarrow.types.nested import *  # noqa: F403
from shmarrow.types.predicates import *  # noqa: F403
from shmarrow.types.primitive import *  # noqa: F403
from shmarrow.types.schema import *  # noqa: F403
from shmarrow.types.unify import *  # noqa: F403
