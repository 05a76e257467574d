#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "lode/base/fmt.h"
#include "lode/io/checksum.h"
#include "lode/io/read_engine.h"
#include "lode/loader/weight_set_builder.h"
#include "lode/prepared/chunk_check.h"
#include "lode/prepared/stage_maker.h"

namespace lode::prepared {
namespace {

constexpr std::size_t kMostUnderWay = 8;  // chunks that are being read at once

// A chunk on its way into its slab.
struct Read {
  std::uint64_t chunk_idx = 0;
  std::span<std::byte> out;         // what of the chunk belongs to the slab
  std::uint64_t padding_bytes = 0;  // zeros of the file behind it
};

class Reader final : public StageMaker {
 public:
  Reader(const StartParts& parts, bool look_at_sums)
      : parts_(parts),
        look_at_sums_(look_at_sums),
        builder_(parts.plan),
        sections_(parts.checkpoint.index.sections) {
    for (std::size_t i = 0; i < kMostUnderWay; ++i) free_.push_back(i);
  }
  // What is under way writes into slabs that are about to go.
  ~Reader() override { (void)drain(); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  Status begin(std::span<std::byte>) override {
    const loader::LoadPolicy& policy = parts_.plan.policy;
    LODE_TRY(engine_, io::make_read_engine(parts_.plan.sources,
                                           {.kind = policy.io,
                                            .num_threads = policy.readers,
                                            .most_bytes_at_once = kMostUnderWay * kChunkBytes}));
    return {};
  }
  Status make(std::size_t stage_idx) override;
  Status end() override {
    LODE_TRY_STATUS(drain());
    return engine_->finish();
  }
  Result<loader::WeightSet> weights() override { return std::move(builder_).finish(); }

 private:
  Status read(std::span<std::byte> slab);
  Status submit(const Section& section, const Read& read);
  Status take_one();
  Status drain();
  Status check(const Read& read) const;

  StartParts parts_;
  bool look_at_sums_;
  loader::WeightSetBuilder builder_;
  std::span<const Section> sections_;  // that are left
  std::unique_ptr<io::ReadEngine> engine_;
  std::array<Read, kMostUnderWay> reads_;
  std::vector<std::size_t> free_;  // of reads_
};

Status Reader::make(std::size_t stage_idx) {
  LODE_TRY(const loader::WeightSetBuilder::Slabs slabs,
           builder_.make_slabs(parts_.ledger, parts_.plan.stages[stage_idx]));
  LODE_TRY_STATUS(read(slabs.dense));
  return read(slabs.bank);
}

Status Reader::read(std::span<std::byte> slab) {
  if (slab.empty()) return {};
  LODE_CHECK(!sections_.empty() && sections_.front().bytes >= slab.size(),
             "sections come in the order of the stages");
  const Section& section = sections_.front();
  sections_ = sections_.subspan(1);
  for (std::uint64_t at = 0; at < section.bytes; at += kChunkBytes) {
    if (parts_.progress.cancel.load(std::memory_order_relaxed)) {
      return Error{.code = Code::kInterrupted, .thing = "the start"};
    }
    const std::uint64_t bytes = std::min(kChunkBytes, section.bytes - at);
    const std::uint64_t used = std::min<std::uint64_t>(bytes, slab.size() - at);
    LODE_TRY_STATUS(submit(
        section, {section.first_chunk + at / kChunkBytes, slab.subspan(at, used), bytes - used}));
  }
  return {};
}

Status Reader::submit(const Section& section, const Read& read) {
  if (free_.empty()) LODE_TRY_STATUS(take_one());
  const std::size_t ticket = free_.back();
  free_.pop_back();
  reads_[ticket] = read;
  const std::uint64_t within = (read.chunk_idx - section.first_chunk) * kChunkBytes;
  engine_->submit({.file_id = section.file_idx,
                   .offset_bytes = section.file_offset_bytes + within,
                   .out = read.out,
                   .ticket = ticket,
                   .owns_blocks = true});  // the last page of a slab is all its own
  return {};
}

Status Reader::take_one() {
  io::ReadCompletion done = engine_->wait();
  free_.push_back(done.ticket);
  LODE_TRY_STATUS(std::move(done.status));
  const Read& read = reads_[done.ticket];
  parts_.progress.finished_bytes.fetch_add(read.out.size(), std::memory_order_relaxed);
  return check(read);
}

Status Reader::drain() {
  Status first;
  while (engine_ && free_.size() < kMostUnderWay) {
    Status status = take_one();
    if (first && !status) first = std::move(status);
  }
  return first;
}

Status Reader::check(const Read& read) const {
  if (!look_at_sums_) return {};
  static constexpr std::array<std::byte, kSectionUnit> kZeros{};
  LODE_CHECK(read.padding_bytes < kZeros.size(), "sections end with the slab's last page");
  const std::uint32_t sum =
      io::crc32c(std::span(kZeros).first(read.padding_bytes), io::crc32c(read.out));
  const Index& index = parts_.checkpoint.index;
  const std::uint32_t wanted = index.chunk_crcs[read.chunk_idx];
  if (sum == wanted) return {};
  const Section& section = section_of(index, read.chunk_idx);
  const std::uint64_t within = (read.chunk_idx - section.first_chunk) * kChunkBytes;
  return to_error({.file = parts_.checkpoint.files[section.file_idx].path,
                   .file_offset_bytes = section.file_offset_bytes + within,
                   .bytes = read.out.size() + read.padding_bytes,
                   .section = section_name(index, section),
                   .section_offset_bytes = within,
                   .found = fmt::format("sum {:08x}, not {:08x}", sum, wanted)});
}

}  // namespace

std::unique_ptr<StageMaker> make_reader(const StartParts& parts, bool look_at_sums) {
  return std::make_unique<Reader>(parts, look_at_sums);
}

}  // namespace lode::prepared
