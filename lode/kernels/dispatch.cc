#include "lode/kernels/dispatch.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

#include "lode/kernels/avx2/install.h"
#include "lode/kernels/avx512/install.h"
#include "lode/kernels/scalar/install.h"

namespace lode::kernels {
namespace {

struct Tables {
  std::array<KernelTable, 3> of;
  std::size_t count;
};

Tables make_tables() noexcept {
  const CpuWords cpu = read_cpu();
  Tables tables{{}, count_available(cpu)};
  scalar::install(tables.of[0]);
  tables.of[0].isa = "scalar";
  if (tables.count > 1) {
    tables.of[1] = tables.of[0];
    avx2::install(tables.of[1]);
    tables.of[1].isa = "avx2";
  }
  if (tables.count > 2) {
    tables.of[2] = tables.of[1];
    avx512::install(tables.of[2], cpu.intel);
    tables.of[2].isa = "avx512";
  }
  return tables;
}

std::atomic<const KernelTable*> forced{nullptr};

}  // namespace

std::size_t count_available(const CpuWords& cpu) noexcept {
  return has_avx512(cpu) ? 3 : has_avx2(cpu) ? 2 : 1;
}

Result<const KernelTable*> choose(std::span<const KernelTable> tables, std::string_view isa,
                                  std::string_view asker) {
  if (isa.empty()) return &tables.back();
  std::string choices;
  for (const KernelTable& table : tables) {
    if (table.isa == isa) return &table;
    if (!choices.empty()) choices += ", ";
    choices += table.isa;
  }
  return Error{.code = Code::kUnsupported,
               .thing = "instruction set",
               .wanted = "one of " + choices,
               .found = "\"" + std::string(isa) + "\"",
               .where = std::string(asker),
               .hint = "these are what this machine can run"};
}

std::span<const KernelTable> available() noexcept {
  static const Tables tables = make_tables();
  return std::span(tables.of).first(tables.count);
}

Result<const KernelTable*> active() {
  if (const KernelTable* table = forced.load(std::memory_order_acquire)) return table;
  const char* isa = std::getenv("LODE_ISA");
  return choose(available(), isa == nullptr ? "" : isa, "LODE_ISA");
}

const KernelTable& active_or_plainest() {
  const Result<const KernelTable*> table = active();
  return table ? **table : available().front();
}

Status force(std::string_view isa) {
  if (isa.empty()) {
    forced.store(nullptr, std::memory_order_release);
    return {};
  }
  LODE_TRY(const KernelTable* table, choose(available(), isa, "force"));
  forced.store(table, std::memory_order_release);
  return {};
}

}  // namespace lode::kernels
