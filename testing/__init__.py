"""What turnwise tests itself with, for the tests of programs that are built on it.

Doubles of the model answer what a test tells them to, and a clock moves when a test moves it. The property-testing kit
generates conversations and checks the laws of the machine. Names are resolved on first use: a test that needs only a
double does not load Hypothesis. Everything here uses public names of the rest of turnwise; tests of turnwise itself
belong in tests/.

    from hypothesis import given
    from turnwise.testing import check_laws, traces

    @given(traces())
    def test_the_laws_hold(trace): check_laws(trace)
"""

from typing import Any

from lazy_loader import attach_stub

_imported, __dir__, __all__ = attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    try:
        return _imported(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "hypothesis":
            raise
        sentence = f'{name} needs the package hypothesis: pip install "turnwise[testing]".'
        raise ModuleNotFoundError(sentence, name=error.name) from None
