#include <malloc.h>

#include "lode/cli/program.h"

namespace {

// Left to itself glibc learns to keep what was freed: after one large block the next ones come from
// heaps that never shrink, one for each thread. A budget needs freed bytes to be free.
void let_go_of_freed_memory() {
  constexpr int kLargeBlockBytes = 128 * 1024;
  mallopt(M_MMAP_THRESHOLD, kLargeBlockBytes);
  mallopt(M_TRIM_THRESHOLD, kLargeBlockBytes);
  mallopt(M_ARENA_MAX, 2);
}

}  // namespace

int main(int argc, char** argv) {
  let_go_of_freed_memory();
  return lode::cli::run_program(argc, argv);
}
