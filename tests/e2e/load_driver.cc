// Loads a checkpoint as `lode` does, and keeps to the contract or breaks it in a way that is named:
// a harness that cannot see the breach proves nothing. For tests/e2e/contract_matrix.py.
//
//   load_driver DIR none|tensor|layer|stream [LOAD-THREADS]
//
// tensor: the bytes of the largest tensor stay as they were read; layer: all of the first layer's.
// stream: no breach, but what is finished goes into checksums and not into memory, so that what is
// left is the transient, of a model of any size.

#include <algorithm>
#include <charconv>
#include <string_view>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/engine/source.h"
#include "lode/json/json.h"
#include "lode/loader/checksum_sink.h"
#include "lode/loader/execute.h"
#include "lode/loader/stream.h"
#include "tests/support/decorated_engine.h"

namespace lode {
namespace {

using checkpoint::TensorRecord;

struct Extent {
  std::uint32_t file_id;
  std::uint64_t begin, end;
};

Extent extent_of(const TensorRecord& tensor) {
  return {tensor.shard_id, tensor.file_offset, tensor.file_offset + tensor.bytes};
}

Result<std::vector<Extent>> kept_extents(const checkpoint::TensorIndex& index,
                                         std::string_view breach) {
  std::vector<Extent> kept;
  if (breach == "none") return kept;
  if (breach == "tensor") {
    const auto tensors = index.tensors();
    kept.push_back(extent_of(*std::ranges::max_element(tensors, {}, &TensorRecord::bytes)));
    return kept;
  }
  if (breach == "layer") {
    for (const TensorRecord& tensor : index.tensors()) {
      const bool first = tensor.name.find("layers.0.") != tensor.name.npos;
      if (first) kept.push_back(extent_of(tensor));
    }
    return kept;
  }
  return Error{.code = Code::kUsage,
               .thing = "breach",
               .wanted = "none, tensor or layer",
               .found = std::string(breach)};
}

// A read may be of more than one tensor: it is kept where most of it is of these.
bool is_kept(const std::vector<Extent>& kept, const io::ReadRequest& request) {
  const std::uint64_t begin = request.offset_bytes, end = begin + request.out.size();
  std::uint64_t shared = 0;
  for (const Extent& extent : kept) {
    if (extent.file_id != request.file_id) continue;
    const std::uint64_t first = std::max(begin, extent.begin), last = std::min(end, extent.end);
    if (first < last) shared += last - first;
  }
  return 2 * shared > request.out.size();
}

Status stream(const engine::Source& source, const loader::LoadPlan& plan) {
  LODE_TRY(const std::unique_ptr<io::ReadEngine> engine, loader::make_engine(plan));
  memory::Ledger ledger(4 * kGiB);
  loader::ChecksumSink sink;
  LODE_TRY_STATUS(
      loader::stream(plan, source.binding, {.ledger = ledger, .engine = *engine, .sink = sink}));
  const auto sums = sink.crcs();
  const auto figures = json::object(
      {{"bytes", sink.bytes()},
       {"chunks", static_cast<std::uint64_t>(sums.size())},
       {"crc32c_of_sums", static_cast<std::uint64_t>(io::crc32c(std::as_bytes(std::span(sums))))},
       {"peak_bytes", ledger.peak_bytes()}});
  fmt::print("{}\n", json::dump(figures));
  return {};
}

Status load(const char* folder, std::string_view breach, std::uint32_t workers) {
  LODE_TRY(const engine::Source source, engine::open_source(folder));
  loader::LoadPolicy policy;
  policy.workers = workers;
  LODE_TRY(const loader::LoadPlan plan,
           loader::plan_load(source.binding, source.spec, source.index, policy));
  if (breach == "stream") return stream(source, plan);
  LODE_TRY(const std::vector<Extent> kept, kept_extents(source.index, breach));
  LODE_TRY(std::unique_ptr<io::ReadEngine> reader, loader::make_engine(plan));
  testing_support::KeepingEngine engine(std::move(reader), [&kept](const io::ReadRequest& request) {
    return is_kept(kept, request);
  });
  memory::Ledger ledger(plan.peak_bytes());
  LODE_TRY(const loader::WeightSet weights, loader::execute(plan, source.binding, ledger, engine));
  const auto figures = json::object({{"weight_bytes", weights.weight_bytes()},
                                     {"page_table_bytes", plan.page_table_bytes()},
                                     {"planned_peak_bytes", plan.peak_bytes()},
                                     {"peak_bytes", ledger.peak_bytes()},
                                     {"kept_bytes", engine.kept_bytes()}});
  fmt::print("{}\n", json::dump(figures));
  return {};
}

}  // namespace
}  // namespace lode

int main(int count, char** arguments) {
  if (count != 3 && count != 4) {
    fmt::print(stderr, "load_driver DIR none|tensor|layer|stream [LOAD-THREADS]\n");
    return 2;
  }
  const std::string_view number = count == 4 ? arguments[3] : "2";
  std::uint32_t workers = 0;
  std::from_chars(number.data(), number.data() + number.size(), workers);
  const lode::Status done = lode::load(arguments[1], arguments[2], workers);
  if (done) return 0;
  fmt::print(stderr, "load_driver: {}\n", to_string(done.error()));
  return lode::info(done.error().code).exit_status;
}
