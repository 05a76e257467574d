#include "lode/prepared/consume.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>
#include <tuple>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/checkpoint/input_file.h"
#include "lode/json/json.h"
#include "lode/loader/slicing.h"
#include "lode/prepared/output_file.h"
#include "lode/prepared/prepare.h"

namespace lode::prepared {
namespace {

constexpr std::uint64_t kBlockBytes = 4 * kKiB;
constexpr std::uint64_t kMostNoteBytes = 64 * kKiB;

Error given_away(const std::filesystem::path& source, const std::string& to) {
  return {.code = Code::kInvalidSource,
          .thing = source.string(),
          .wanted = "a checkpoint with its weights",
          .found = fmt::format("holes: they were given to {} (--consume)", to),
          .hint = "use that folder; a preparation that was stopped goes on into it"};
}

Status check_own(const checkpoint::Shard& shard, io::SystemCalls& calls) {
  std::error_code fault;
  io::FileStatus status;
  const int answer = calls.status_of(shard.path, status);
  if (answer < 0) return io::system_error(shard.path, "look at it", answer);
  const bool link = std::filesystem::is_symlink(shard.path, fault);
  if (!link && status.links == 1) return {};
  return Error{.code = Code::kUsage,
               .thing = shard.path,
               .wanted = "a file of this folder alone, to consume it",
               .found = link ? "a link" : fmt::format("{} names of the file", status.links),
               .hint = "others may need it: copy the checkpoint, or prepare without --consume"};
}

// Calls `use(shard, offset)` for the first byte of whatever an item is made from.
template <class Use>
void for_each_source(const loader::Item& item, Use use) {
  if (item.vector != nullptr) return use(item.vector->shard, item.vector->offset_bytes);
  for (const loader::MatrixSource* matrix : {item.first, item.second}) {
    if (matrix == nullptr) continue;
    use(matrix->codes.shard, matrix->codes.offset_bytes);
    if (matrix->encoding.has_scale) use(matrix->scales.shard, matrix->scales.offset_bytes);
    if (matrix->encoding.tensor_scale != formats::TensorScale::kNone) {
      use(matrix->matrix_scale_shard, matrix->matrix_scale_offset_bytes);
    }
  }
}

}  // namespace

Status check_not_given_away(const std::filesystem::path& source, const std::filesystem::path& to) {
  LODE_TRY(const std::optional<std::string> text,
           checkpoint::read_small_file(source / kGivenAwayFile, kMostNoteBytes));
  if (!text) return {};
  const auto note = json::parse(*text);
  const json::Value* const out = note ? note->find("given_to") : nullptr;
  const bool known = out != nullptr && out->as_string() != nullptr;
  std::error_code fault;
  if (known && !to.empty() && std::filesystem::weakly_canonical(to, fault) == *out->as_string()) {
    return {};
  }
  return given_away(source, known ? *out->as_string() : "another folder");
}

Result<Consumer> Consumer::plan(const Input& input, const std::filesystem::path& out,
                                io::SystemCalls& calls) {
  Consumer consumer;
  consumer.calls_ = &calls;
  consumer.source_ = input.folder;
  consumer.out_ = out;
  for (const checkpoint::Shard& shard : input.index.shards()) {
    LODE_TRY_STATUS(check_own(shard, calls));
    consumer.shards_.push_back(shard.path);
  }
  LODE_TRY_STATUS(consumer.lock_sources());
  std::vector<Range>& ranges = consumer.ranges_;
  ranges.reserve(input.index.tensors().size());
  for (const checkpoint::TensorRecord& tensor : input.index.tensors()) {
    ranges.push_back({tensor.shard_id, 0, tensor.file_offset, tensor.file_offset + tensor.bytes});
  }
  const auto place = [](const Range& range) { return std::tuple(range.shard, range.begin_bytes); };
  std::sort(ranges.begin(), ranges.end(),
            [&](const Range& a, const Range& b) { return place(a) < place(b); });
  for (std::uint32_t stage = 0; stage < input.plan.stages.size(); ++stage) {
    const loader::StagePlan& of = input.plan.stages[stage];
    for (std::size_t i = 0; i < loader::num_items(of); ++i) {
      for_each_source(loader::item_at(of, input.binding, i),
                      [&](std::uint32_t shard, std::uint64_t offset) {
                        auto after = std::upper_bound(
                            ranges.begin(), ranges.end(), std::tuple(shard, offset),
                            [&](const auto& at, const Range& range) { return at < place(range); });
                        LODE_CHECK(after != ranges.begin(), "a source that is in no tensor");
                        --after;
                        after->stage_idx = std::max(after->stage_idx, stage);
                      });
    }
  }
  return consumer;
}

Status Consumer::lock_sources() {
  LODE_TRY(lock_, OutputFile::open_to_read(*calls_, shards_.front()));
  return lock_->lock();
}

// Before the first hole: whoever finds the folder must not take zeros for weights.
Status Consumer::sign(const std::filesystem::path& source) const {
  std::error_code fault;
  const std::string to = std::filesystem::weakly_canonical(out_, fault).string();
  const std::string note = json::dump(json::object({{"given_to", to}}), 2) + "\n";
  return replace_file(*calls_, source.string(), std::string(kGivenAwayFile),
                      std::as_bytes(std::span(note)));
}

// Of the range and of those beside it that nobody needs any more, the blocks that are whole.
Consumer::Range Consumer::whole_blocks_around(std::size_t range_idx) const {
  Range whole = ranges_[range_idx];
  const auto joins = [&](const Range& other, std::uint64_t begin, std::uint64_t end) {
    return other.shard == whole.shard && other.stage_idx <= whole.stage_idx &&
           other.end_bytes == begin && end != 0;
  };
  const std::uint64_t first_block = whole.begin_bytes / kBlockBytes * kBlockBytes;
  for (std::size_t i = range_idx; i > 0 && whole.begin_bytes > first_block; --i) {
    if (!joins(ranges_[i - 1], whole.begin_bytes, 1)) break;
    whole.begin_bytes = ranges_[i - 1].begin_bytes;
  }
  const std::uint64_t last_block = align_up(whole.end_bytes, kBlockBytes);
  for (std::size_t i = range_idx + 1; i < ranges_.size() && whole.end_bytes < last_block; ++i) {
    const Range& next = ranges_[i];
    if (next.shard != whole.shard || next.stage_idx > whole.stage_idx) break;
    if (next.begin_bytes != whole.end_bytes) break;
    whole.end_bytes = next.end_bytes;
  }
  whole.begin_bytes = align_up(std::max(whole.begin_bytes, first_block), kBlockBytes);
  whole.end_bytes = std::min(whole.end_bytes, last_block) / kBlockBytes * kBlockBytes;
  return whole;
}

Status Consumer::punch_stage(std::uint32_t stage_idx) {
  int descriptor = -1;
  std::uint32_t open_shard = std::numeric_limits<std::uint32_t>::max();
  std::uint64_t punched_end = 0;  // of the open shard
  std::int64_t answer = 0;
  for (std::size_t i = 0; i < ranges_.size() && answer >= 0; ++i) {
    if (ranges_[i].stage_idx != stage_idx) continue;
    Range whole = whole_blocks_around(i);
    // Neighbours share a block: it is given back once.
    if (whole.shard == open_shard) whole.begin_bytes = std::max(whole.begin_bytes, punched_end);
    if (whole.begin_bytes >= whole.end_bytes) continue;
    punched_end = whole.end_bytes;
    if (whole.shard != open_shard) {
      if (descriptor >= 0) calls_->close(descriptor);
      open_shard = whole.shard;
      descriptor = calls_->open(shards_[open_shard], O_RDWR, 0);
      if (descriptor < 0) return io::system_error(shards_[open_shard], "open it", descriptor);
    }
    do {
      answer =
          calls_->punch_hole(descriptor, whole.begin_bytes, whole.end_bytes - whole.begin_bytes);
    } while (answer == -EINTR);
    freed_bytes_ += whole.end_bytes - whole.begin_bytes;
  }
  if (descriptor >= 0) calls_->close(descriptor);
  if (answer >= 0) return {};
  return io::system_error(shards_[open_shard], "give its blocks back (--consume)", answer);
}

Status Consumer::give_back(const Index& index, std::uint64_t num_chunks) {
  if (calls_ == nullptr) return {};
  std::uint32_t done_stages = 0;  // wholly on the disk
  for (const Section& section : index.sections) {
    const bool done = section.first_chunk + section.num_chunks() <= num_chunks;
    if (!done) break;
    done_stages = section.stage_idx + 1;
  }
  // A stage whose bank follows is done with the bank only.
  if (done_stages > 0 && num_chunks < index.num_chunks()) {
    for (const Section& section : index.sections) {
      const bool open = section.first_chunk + section.num_chunks() > num_chunks;
      if (open) {
        done_stages = std::min(done_stages, section.stage_idx);
        break;
      }
    }
  }
  if (done_stages <= next_stage_) return {};
  if (!signed_) LODE_TRY_STATUS(sign(source_));
  signed_ = true;
  LODE_TRY_STATUS(journal_->add_holes(done_stages - 1));
  for (; next_stage_ < done_stages; ++next_stage_) LODE_TRY_STATUS(punch_stage(next_stage_));
  return {};
}

std::uint64_t Consumer::most_needed_bytes(const Index& index, std::uint64_t num_chunks,
                                          std::uint64_t unit_bytes) const {
  std::vector<std::uint64_t> given(index.stages.size(), 0);
  for (const Range& range : ranges_) given[range.stage_idx] += range.end_bytes - range.begin_bytes;
  std::int64_t balance = 0;
  std::int64_t most = 0;
  std::uint32_t stage = 0;
  for (const Section& section : index.sections) {
    // Blocks are counted back generously late: a stage's when the one after the next begins.
    for (; stage + 1 < section.stage_idx; ++stage) {
      balance -= static_cast<std::int64_t>(given[stage]);
    }
    const std::uint64_t done =
        num_chunks <= section.first_chunk
            ? 0
            : std::min(section.bytes, (num_chunks - section.first_chunk) * kChunkBytes);
    balance += static_cast<std::int64_t>(section.bytes - done);
    most = std::max(most, balance);
  }
  return static_cast<std::uint64_t>(most) + (is_at_work() ? unit_bytes : 0);
}

}  // namespace lode::prepared
