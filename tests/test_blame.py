"""A fault of a user's file is told as that, one of our code as ours; neither ends what has nothing to do with it."""

from __future__ import annotations

from tests.running import run_app


def test_settings_of_others_that_do_not_work_are_a_matter_of_their_file(exact_demo, tmp_path):
    file = tmp_path / "how.yml"
    for content in ("plugin: Nonsense\n", "plugin: MultiProc\nplugin_args: {n_procs: many}\n"):
        file.write_text(content)
        found = run_app(exact_demo[0], tmp_path / "out", "--atlas", "builtin", "--use-plugin", file)
        assert found.code == 2
        assert str(file) in found.err
        assert "Traceback" not in found.err
