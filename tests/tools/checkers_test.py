"""The checkers of tools/, each fed a tree with one planted breach and the same tree without it."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

CLEAN = {
    "tools/floors.txt": "0 base\n1 formats memory\n2 kernels tensor\n",
    "lode/base/result.h": "#pragma once\nint base();\n",
    "lode/formats/e2m1.h": '#pragma once\n// Source: OCP MX v1.0\n#include "lode/base/result.h"\n',
    "lode/memory/buffer.cc": '#include <sys/mman.h>\n\n#include "lode/base/result.h"\n'
                             "int* f() { return new int; }\n",
    "lode/kernels/avx2/dot.cc": '#include <immintrin.h>\n\n#include "lode/formats/e2m1.h"\n',
    "lode/tensor/tensor.h": "#pragma once\n/// Makes one.\n/// Errors: kIo.\nResult<int> make();\n"
                            "struct T {\n  T(const T&) = delete;  // never a new one\n};\n",
}


class Checker(unittest.TestCase):
    def run_on(self, script, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (CLEAN | files).items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return subprocess.run([sys.executable, ROOT / "tools" / script, folder],
                                  capture_output=True, text=True, check=False)

    def passes(self, script, files=None):
        run = self.run_on(script, files or {})
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def finds(self, script, name, text, said):
        run = self.run_on(script, {name: text})
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        self.assertIn(said, run.stdout)


class Floors(Checker):
    def test_a_clean_tree_passes(self):
        self.passes("check_floors.py")

    def test_looking_up_is_found(self):
        self.finds("check_floors.py", "lode/base/result.h", '#include "lode/memory/x.h"\n',
                   "base (floor 0) may not see memory (floor 1)")

    def test_looking_sideways_is_found_in_tests_too(self):
        self.finds("check_floors.py", "lode/memory/a_test.cc", '#include "lode/formats/e2m1.h"\n',
                   "may not see formats")

    def test_kernels_see_only_base_and_formats(self):
        self.finds("check_floors.py", "lode/kernels/a.cc", '#include "lode/memory/x.h"\n',
                   "kernels may see only base, formats")

    def test_support_of_tests_is_for_tests_and_no_way_up(self):
        support = {"tests/support/files.h": '#include "lode/tensor/tensor.h"\n'}
        use = '#include "tests/support/files.h"\n'
        self.passes("check_floors.py", {"tests/support/files.h": "", "lode/memory/a_test.cc": use})
        run = self.run_on("check_floors.py", support | {"lode/memory/a_test.cc": use})
        self.assertIn("through tests/support/files.h: memory (floor 1) may not see tensor", run.stdout)
        run = self.run_on("check_floors.py", support | {"lode/memory/a.cc": use})
        self.assertIn("from the root", run.stdout)

    def test_helpers_of_tests_are_for_tests(self):
        use = '#include "lode/memory/test_files.h"\n'
        self.passes("check_floors.py", {"lode/memory/a_test.cc": use})
        self.finds("check_floors.py", "lode/memory/a.cc", use, "is for tests only")

    def test_an_unlisted_room_is_found(self):
        self.finds("check_floors.py", "lode/attic/a.cc", "", "attic is no room")

    def test_a_name_not_from_the_root_is_found(self):
        self.finds("check_floors.py", "lode/memory/a.cc", '#include "buffer.h"\n', "from the root")


class Doors(Checker):
    def test_a_clean_tree_passes(self):
        self.passes("check_doors.py")

    def test_words_in_comments_and_strings_are_free(self):
        self.passes("check_doors.py", {"lode/tensor/a.cc": '#include <new>\n// new\nauto x = "malloc(1) new";\n'
                                                           "auto y = R\"(const_cast)\";\n"})

    def test_intrinsics_outside_their_folders_are_found(self):
        self.finds("check_doors.py", "lode/tensor/a.cc", "#include <immintrin.h>\n", "comes in through")

    def test_each_forbidden_word_is_found(self):
        for line in ("auto* p = new int;", "delete p;", "void* p = malloc(1);", "const_cast<int&>(x);",
                     "reinterpret_cast<int*>(p);", "std::cout << 1;", 'printf("x");', "std::exit(1);",
                     "throw 1;", "std::free(p);"):
            with self.subTest(line):
                self.finds("check_doors.py", "lode/tensor/a.cc", f"void f() {{ {line} }}\n", "a.cc:1:")


class Sizes(Checker):
    def test_a_clean_tree_passes(self):
        self.passes("check_sizes.py")

    def test_functions_of_60_lines_pass_and_of_61_are_found(self):
        self.passes("check_sizes.py", {"lode/tensor/a.cc": "void f() {\n" + "  g();\n" * 58 + "}\n"})
        self.finds("check_sizes.py", "lode/tensor/a.cc", "void f() {\n" + "  g();\n" * 59 + "}\n",
                   "function 61 > 60")

    def test_kernels_may_have_100_lines(self):
        self.passes("check_sizes.py", {"lode/kernels/a.cc": "void f() {\n" + "  g();\n" * 98 + "}\n"})
        self.finds("check_sizes.py", "lode/kernels/a.cc", "void f() {\n" + "  g();\n" * 99 + "}\n",
                   "function 101 > 100")

    def test_the_seventh_parameter_is_found(self):
        six = "int a, std::map<int, int> b, int c, int d, int e, int f"
        self.passes("check_sizes.py", {"lode/tensor/a.cc": f"void f({six}) {{}}\n"})
        self.finds("check_sizes.py", "lode/tensor/a.cc", f"void f({six}, int g) {{}}\n", "parameters 7 > 6")

    def test_the_fourth_nesting_is_found_and_lambdas_do_not_count(self):
        def nested(depth):
            return "auto f() {\n  return [] {" + "if (x) {" * depth + "}" * depth + "};\n}\n"
        self.passes("check_sizes.py", {"lode/tensor/a.cc": nested(3)})
        self.finds("check_sizes.py", "lode/tensor/a.cc", nested(4), "nesting 4 > 3")

    def test_long_files_and_lines_are_found(self):
        self.finds("check_sizes.py", "lode/tensor/a.h", "\n" * 301, "header 301 > 300")
        self.finds("check_sizes.py", "lode/tensor/a.cc", "\n" * 501, "file 501 > 500")
        self.finds("check_sizes.py", "lode/families/a.cc", "\n" * 161, "file 161 > 160")
        self.finds("check_sizes.py", "lode/tensor/a.cc", "x" * 101 + "\n", "line 101 > 100")


class Docs(Checker):
    def test_a_clean_tree_passes(self):
        self.passes("check_docs.py")

    def test_a_result_without_errors_is_found(self):
        self.finds("check_docs.py", "lode/tensor/a.h", "/// Reads.\nResult<int> read();\n", "Errors:")
        self.finds("check_docs.py", "lode/tensor/a.h", "class A {\n public:\n  Status go();\n};\n", "Errors:")

    def test_private_results_are_free(self):
        self.passes("check_docs.py", {"lode/tensor/a.h": "class A {\n  Status go();\n};\n"})

    def test_a_format_without_source_is_found(self):
        self.finds("check_docs.py", "lode/formats/a.h", "int x;\n", "Source:")

    def test_a_tensor_without_shapes_is_found(self):
        self.finds("check_docs.py", "lode/kernels/a.h", "void f(const TensorView& x);\n", "Shapes:")

    def test_places_of_this_machine_are_found(self):
        for place in ("../sha" + "red/x", "/wo" + "rk/main", "/ho" + "me/me", "/ro" + "ot/x"):
            with self.subTest(place):
                self.finds("check_docs.py", "docs/a.md", f"see {place}\n", "this machine")


class KernelObjects(unittest.TestCase):
    def run_on(self, code):
        with tempfile.TemporaryDirectory() as folder:
            source, built = pathlib.Path(folder, "a.cc"), pathlib.Path(folder, "a.o")
            source.write_text(code)
            command = ["c++", "-std=c++20", "-mavx2", "-O0", "-o", str(built), "-c", str(source)]
            subprocess.run(command, check=True)
            entry = {"directory": folder, "command": " ".join(command), "file": "a.cc"}
            pathlib.Path(folder, "compile_commands.json").write_text(json.dumps([entry]))
            return subprocess.run([sys.executable, ROOT / "tools/check_kernel_objects.py", folder],
                                  capture_output=True, text=True, check=False)

    def test_an_inline_function_left_in_the_object_is_found(self):
        run = self.run_on("inline int one() { return 1; }\nint f() { return one(); }\n")
        self.assertEqual(run.returncode, 1)
        self.assertIn("weak code symbol one()", run.stdout)

    def test_an_unnamed_namespace_and_weak_data_pass(self):
        run = self.run_on("inline constexpr int k[2] = {1, 2};\nnamespace { int one() { return k[1]; } }\n"
                          "const int* p() { return k; }\nint f() { return one(); }\n")
        self.assertEqual(run.returncode, 0, run.stdout)


if __name__ == "__main__":
    unittest.main()
