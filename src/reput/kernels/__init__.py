"""Kernels: compiled functions over columns of whole batches; they take arrays and addresses, and touch no file."""

import sys
import sysconfig

from reput.errors import ReputError

# Here, since all that touches a store loads kernels, and before Numba is imported. With PYTHON_GIL=1 such a build is
# refused, too: nothing was tested there.
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    raise ReputError(
        f"free-threaded Python is not supported ({sys.executable}): kernels read Python objects, which is safe under "
        f"the interpreter lock only; use the default build of Python, {version} in place of {version}t"
    )
