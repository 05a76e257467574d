#include "lode/prepared/format.h"

#include <algorithm>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/io/checksum.h"
#include "lode/prepared/engine_records.h"
#include "lode/prepared/index_records.h"
#include "lode/prepared/wire.h"

namespace lode::prepared {
namespace {

constexpr std::string_view kMagic = "LODEIDX";
constexpr std::size_t kHeaderBytes = 128;
constexpr std::size_t kSumBytes = sizeof(std::uint32_t);

// Places sections one behind the other.
class LayOut {
 public:
  void add(SectionKind kind, std::size_t stage_idx, std::uint64_t slab_bytes) {
    if (slab_bytes == 0) return;
    const std::uint64_t bytes = align_up(slab_bytes, kSectionUnit);
    if (offset_ != 0 && bytes > kMostFileBytes - std::min(offset_, kMostFileBytes)) {
      ++file_idx_;
      offset_ = 0;
    }
    sections_.push_back(
        {kind, static_cast<std::uint32_t>(stage_idx), file_idx_, offset_, bytes, chunks_});
    chunks_ += sections_.back().num_chunks();
    offset_ = align_up(offset_ + bytes, kSectionAlignment);
  }
  std::vector<Section> done() && { return std::move(sections_); }

 private:
  std::vector<Section> sections_;
  std::uint32_t file_idx_ = 0;
  std::uint64_t offset_ = 0;
  std::uint64_t chunks_ = 0;
};

struct Header {
  std::uint32_t num_stages = 0;
  std::uint32_t num_places = 0;
  std::uint32_t num_banks = 0;
  std::uint32_t num_sections = 0;
  std::uint64_t num_chunks = 0;
  std::uint32_t num_engine_banks = 0;
  std::uint32_t num_chosen_experts = 0;  // where not all of them are prepared

  std::uint64_t index_bytes() const noexcept {  // no overflow: 32-bit counts, and chunks checked
    return kHeaderBytes + num_stages * kStageBytes + num_places * kPlaceBytes +
           num_banks * kBankBytes + num_sections * kSectionBytes + num_chunks * kSumBytes +
           (num_engine_banks == 0 ? 0 : kChoiceBytes) + num_engine_banks * kEngineBankBytes +
           num_chosen_experts * sizeof(std::uint32_t) + kSumBytes;
  }
};

Header header_of(const Index& index) {
  Header header;
  header.num_stages = static_cast<std::uint32_t>(index.stages.size());
  for (const loader::StagePlan& stage : index.stages) {
    header.num_places += static_cast<std::uint32_t>(stage.places.size());
    header.num_banks += stage.bank ? 1 : 0;
  }
  header.num_sections = static_cast<std::uint32_t>(index.sections.size());
  header.num_chunks = index.chunk_crcs.size();
  header.num_engine_banks = static_cast<std::uint32_t>(index.engine_banks.size());
  header.num_chosen_experts = static_cast<std::uint32_t>(index.choice.experts.size());
  return header;
}

void put(const Header& header, RecordWriter& out) {
  out.text(kMagic, 8);
  out.number(kFormatVersion);
  out.number(static_cast<std::uint32_t>(kChunkBytes));
  out.number(header.num_stages);
  out.number(header.num_places);
  out.number(header.num_banks);
  out.number(header.num_sections);
  out.number(header.num_chunks);
  out.number(header.num_engine_banks);
  out.number(header.num_chosen_experts);
  out.fill_to(kHeaderBytes - kSumBytes);
  out.number(io::crc32c(out.bytes()));
}

std::uint32_t sum_at(std::span<const std::byte> bytes, std::size_t offset) {
  return RecordReader(bytes.subspan(offset)).number<std::uint32_t>();
}

Result<Header> read_header(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes + kSumBytes) {
    return damaged("index.bin", "128 bytes and more", fmt::format("{}", bytes.size()));
  }
  RecordReader in(bytes);
  if (in.text(8) != kMagic) return damaged("index.bin", "\"LODEIDX\"", "another beginning");
  const auto version = in.number<std::uint32_t>();
  if (version != kFormatVersion) {
    return Error{.code = Code::kLayoutMismatch,
                 .thing = "index.bin",
                 .wanted = fmt::format("version {}", kFormatVersion),
                 .found = fmt::format("version {}", version),
                 .hint = "prepare the checkpoint again with this version of lode"};
  }
  if (io::crc32c(bytes.first(kHeaderBytes - kSumBytes)) != sum_at(bytes, kHeaderBytes - kSumBytes))
    return damaged("index.bin", "the sum of its header", "another");
  if (in.number<std::uint32_t>() != kChunkBytes) {
    return damaged("index.bin", "chunks of 2 MiB", "others");
  }
  Header header;
  header.num_stages = in.number<std::uint32_t>();
  header.num_places = in.number<std::uint32_t>();
  header.num_banks = in.number<std::uint32_t>();
  header.num_sections = in.number<std::uint32_t>();
  header.num_chunks = in.number<std::uint64_t>();
  header.num_engine_banks = in.number<std::uint32_t>();
  header.num_chosen_experts = in.number<std::uint32_t>();
  if (header.num_chunks > bytes.size() || header.index_bytes() != bytes.size()) {
    return damaged("index.bin", "as many bytes as its counts make",
                   fmt::format("{}", bytes.size()));
  }
  return header;
}

}  // namespace

std::vector<Section> lay_out(std::span<const loader::StagePlan> stages,
                             std::span<const loader::EngineBankPlan> engine_banks) {
  LayOut out;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    out.add(SectionKind::kDense, i, stages[i].slab_bytes);
    if (stages[i].bank && engine_banks.empty()) {
      out.add(SectionKind::kBank, i, stages[i].bank->bytes());
    }
  }
  for (const loader::EngineBankPlan& bank : engine_banks) {
    out.add(SectionKind::kEngineBank, bank.layer + 1, bank.bytes);
  }
  return std::move(out).done();
}

std::vector<std::uint64_t> file_bytes(std::span<const Section> sections) {
  std::vector<std::uint64_t> bytes;
  for (const Section& section : sections) {
    bytes.resize(section.file_idx + std::size_t{1});
    bytes.back() = section.file_offset_bytes + section.bytes;
  }
  return bytes;
}

std::string data_file_name(std::size_t file_idx) {
  return fmt::format("weights-{:05}.bin", file_idx);
}

std::uint64_t Index::num_chunks() const noexcept {
  return sections.empty() ? 0 : sections.back().first_chunk + sections.back().num_chunks();
}

Index make_index(std::vector<loader::StagePlan> stages) {
  Index index;
  index.stages = std::move(stages);
  index.sections = lay_out(index.stages);
  index.chunk_crcs.resize(index.num_chunks());
  return index;
}

Result<Index> make_index(std::vector<loader::StagePlan> stages, const loader::EngineChoice& choice,
                         std::vector<loader::EngineBankPlan> engine_banks) {
  Index index;
  index.stages = std::move(stages);
  index.choice = choice;
  index.engine_banks = std::move(engine_banks);
  for (const loader::EngineBankPlan& bank : index.engine_banks) {
    loader::StagePlan& stage = index.stages[bank.layer + 1];
    stage.used_bytes = 0;  // finish_stage reckons it anew
    LODE_TRY(stage.bank, restored_bank(bank));
    LODE_TRY_STATUS(reckon_stage(stage));
  }
  index.sections = lay_out(index.stages, index.engine_banks);
  index.chunk_crcs.resize(index.num_chunks());
  return index;
}

std::vector<std::byte> encode(const Index& index) {
  LODE_CHECK(index.chunk_crcs.size() == index.num_chunks(), "an index has a sum for each chunk");
  RecordWriter out;
  put(header_of(index), out);
  for (const loader::StagePlan& stage : index.stages) put_stage(stage, out);
  for (const loader::StagePlan& stage : index.stages) {
    for (const loader::TensorPlace& place : stage.places) put_place(place, out);
  }
  for (const loader::StagePlan& stage : index.stages) {
    if (stage.bank) put_bank(*stage.bank, out);
  }
  for (const Section& section : index.sections) put_section(section, out);
  if (!index.engine_banks.empty()) put_choice(index.choice, out);
  for (const loader::EngineBankPlan& bank : index.engine_banks) put_engine_bank(bank, out);
  out.raw(std::as_bytes(std::span(index.chunk_crcs)));
  out.number(io::crc32c(out.bytes()));
  return std::move(out).take();
}

Result<Index> decode(std::span<const std::byte> bytes) {
  LODE_TRY(const Header header, read_header(bytes));
  if (io::crc32c(bytes.first(bytes.size() - kSumBytes)) != sum_at(bytes, bytes.size() - kSumBytes))
    return damaged("index.bin", "the sum of its records", "another");
  RecordReader in(bytes.subspan(kHeaderBytes));
  Index index;
  StageCounts counts{header.num_places, header.num_banks};
  LODE_TRY(index.stages, read_stages(in, header.num_stages, counts));
  for (loader::StagePlan& stage : index.stages) LODE_TRY_STATUS(read_places(in, stage));
  for (loader::StagePlan& stage : index.stages) {
    if (stage.bank) LODE_TRY_STATUS(read_bank(in, stage));
  }
  for (loader::StagePlan& stage : index.stages) LODE_TRY_STATUS(finish_stage(stage));
  for (std::uint32_t i = 0; i < header.num_sections; ++i) {
    index.sections.push_back(read_section(in));
  }
  if (header.num_engine_banks > 0) {
    LODE_TRY(index.choice, read_choice(in, header.num_chosen_experts));
    LODE_TRY(index.engine_banks, read_engine_banks(in, header.num_engine_banks, index));
  }
  if (index.sections != lay_out(index.stages, index.engine_banks)) {
    return damaged("index.bin", "sections where the stages put them", "others");
  }
  if (index.num_chunks() != header.num_chunks) {
    return damaged("index.bin", fmt::format("sums of {} chunks", index.num_chunks()),
                   fmt::format("{}", header.num_chunks));
  }
  index.chunk_crcs.resize(header.num_chunks);
  for (std::uint32_t& crc : index.chunk_crcs) crc = in.number<std::uint32_t>();
  return index;
}

}  // namespace lode::prepared
