#include <cstdio>

#include "lode/base/fmt.h"
#include "lode/cli/program.h"
#include "lode/comm/mpi_group.h"
#include "lode/families/family.h"
#include "lode/kernels/kernel_table.h"

namespace lode::cli {
namespace {

Status print_version() {
  LODE_TRY(const kernels::KernelTable* active, kernels::active());
  fmt::print("lode {}\n", LODE_VERSION);
  std::string isas;
  for (const kernels::KernelTable& table : kernels::available()) {
    isas += fmt::format(" {}{}", table.isa, table.isa == active->isa ? "*" : "");
  }
  fmt::print("kernels{}  (* in use; LODE_ISA forces one)\n", isas);
  std::string families;
  for (const families::Family* family : families::all_families()) {
    families += fmt::format(" {}", family->model_type);
  }
  fmt::print("families{}\n", families);
  fmt::print("ranks threads{}\n", comm::mpi_built_in() ? " MPI" : "");
  return {};
}

}  // namespace

void add_version(Program& program) {
  CLI::App* const command = add_command(program, "version", "Version, kernels and families",
                                        "  lode version\n  LODE_ISA=scalar lode version\n");
  command->callback([&program] { program.chosen = print_version; });
}

}  // namespace lode::cli
