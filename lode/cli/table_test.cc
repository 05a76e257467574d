#include "lode/cli/table.h"

#include <gtest/gtest.h>

namespace lode::cli {
namespace {

TEST(Table, AlignsColumnsAndTrimsLineEnds) {
  Table table({"role", "bytes", ""}, {1});
  table.add({"expert_gate", "7", "x"});
  table.add({"q", "1024", ""});
  EXPECT_EQ(table.text(),
            "role         bytes\n"
            "expert_gate      7  x\n"
            "q             1024\n");
}

}  // namespace
}  // namespace lode::cli
