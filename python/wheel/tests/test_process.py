"""Tests forked processes, interpreter shutdown and two copies of the module, each in a separate process."""

import os
import subprocess
import sys
import textwrap

import pytest

import warpsmith


def run(program):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_names_the_fork():
    out = run(
        """
        import os, warnings
        import numpy as np
        from warpsmith import ops
        warnings.simplefilter("ignore")
        x = np.ones(1000, dtype=np.float32)
        kept = ops.abs(x)
        child = os.fork()
        if child == 0:
            try:
                ops.abs(x)
                print("no error", flush=True)
            except RuntimeError as error:
                print("fork" in str(error), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        assert (ops.abs(x) == 1).all() and (kept == 1).all()
        """
    )
    assert out.strip() == "True"


def test_results_outlive_the_module_and_the_interpreter():
    run(
        """
        import sys, threading
        import numpy as np
        from warpsmith import ops
        x = np.ones(1 << 20, dtype=np.float32)
        class Last:
            def __del__(self):
                assert self.kept[0] == 1
        last = Last()
        last.kept = ops.abs(x)
        sys.last = last
        # The thread is still computing when the interpreter shuts down.
        threading.Thread(target=lambda: [ops.exp(x) for _ in range(10000)], daemon=True).start()
        """
    )


def test_two_copies_of_the_module_in_one_process():
    folder = os.path.dirname(warpsmith.__file__)
    out = run(
        f"""
        import shutil, sys, tempfile
        import numpy as np
        import warpsmith
        with tempfile.TemporaryDirectory() as other:
            shutil.copytree({folder!r}, other + "/other_warpsmith")
            sys.path.insert(0, other)
            import other_warpsmith
            x = np.arange(6, dtype=np.float32)
            a, b = warpsmith.ops.abs(x), other_warpsmith.ops.neg(x)
            # Each module accepts results of the other module.
            print(warpsmith.ops.add(a, b).tolist(), other_warpsmith.ops.add(b, a).tolist())
        """
    )
    assert out.strip() == f"{[0.0] * 6} {[0.0] * 6}"
