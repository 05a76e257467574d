#include "lode/prepared/index_records.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/layout/panels.h"
#include "lode/memory/buffer.h"

namespace lode::prepared {
namespace {

using families::Role;

constexpr std::size_t kRoleField = 32;
constexpr std::uint64_t kMostSlabBytes = std::uint64_t{1} << 46;
constexpr std::uint64_t kMostExtent = std::uint64_t{1} << 40;
constexpr std::uint64_t kMostExperts = 1U << 20;
constexpr std::uint32_t kMostPlaces = 1024;

void put_meta(const tensor::Meta& meta, RecordWriter& out) {
  put_encoding(meta.encoding, out);
  out.number(static_cast<std::uint32_t>(meta.layout));
  out.number(static_cast<std::uint32_t>(meta.shape.rank()));
  for (std::size_t axis = 0; axis < tensor::Shape::kMaxRank; ++axis) {
    out.number(axis < meta.shape.rank() ? meta.shape[axis] : std::uint64_t{0});
  }
}

Result<tensor::Shape> shape_of(std::uint32_t rank, const std::array<std::uint64_t, 4>& extents) {
  for (std::size_t axis = 0; axis < extents.size(); ++axis) {
    const bool right =
        axis < rank ? extents[axis] > 0 && extents[axis] < kMostExtent : extents[axis] == 0;
    if (!right) return damaged("index.bin", "a shape", fmt::format("extent {}", extents[axis]));
  }
  switch (rank) {
    case 1:
      return tensor::Shape{extents[0]};
    case 2:
      return tensor::Shape{extents[0], extents[1]};
    case 3:
      return tensor::Shape{extents[0], extents[1], extents[2]};
    default:
      return damaged("index.bin", "a shape of one to three extents", fmt::format("{}", rank));
  }
}

Result<tensor::Meta> read_meta(RecordReader& in) {
  tensor::Meta meta;
  LODE_TRY(meta.encoding, read_encoding(in));
  const auto layout = in.number<std::uint32_t>();
  if (layout > 2) return unknown("a layout", fmt::format("{}", layout));
  meta.layout = static_cast<tensor::Layout>(layout);
  const auto rank = in.number<std::uint32_t>();
  std::array<std::uint64_t, 4> extents{};
  for (std::uint64_t& extent : extents) extent = in.number<std::uint64_t>();
  LODE_TRY(meta.shape, shape_of(rank, extents));
  return meta;
}

Result<Role> read_role(RecordReader& in) {
  const std::string_view name = in.text(kRoleField);
  for (std::size_t i = 0; i < families::kNumRoles; ++i) {
    if (families::name(static_cast<Role>(i)) == name) return static_cast<Role>(i);
  }
  return unknown("a role", name);
}

struct Sizes {
  std::uint64_t bytes = 0;
  std::uint64_t used_bytes = 0;
};

// What a tensor of this meta takes; nothing where there is no such tensor.
std::optional<Sizes> sizes_of(const tensor::Meta& meta) {
  const tensor::Shape& shape = meta.shape;
  if (meta.layout == tensor::Layout::kRowMajor) {
    if (meta.encoding.has_scale) return std::nullopt;
    auto bits = std::optional<std::uint64_t>(formats::info(meta.encoding.element).bits);
    for (const std::uint64_t extent : shape.extents()) {
      if (bits) bits = checked_mul(*bits, extent);
    }
    if (!bits || *bits % 8 != 0) return std::nullopt;
    return Sizes{*bits / 8, *bits / 8};
  }
  const bool pair = meta.layout == tensor::Layout::kGateUpPanels;
  if (shape.rank() != (pair ? 3U : 2U) || (pair && shape[0] != 2)) return std::nullopt;
  const std::size_t rows = pair ? 1 : 0;
  const auto panels =
      layout::PanelLayout::make(meta.encoding, shape[rows], shape[rows + 1], pair ? 2 : 1);
  if (!panels) return std::nullopt;
  return Sizes{panels->total_bytes(), panels->used_bytes()};
}

std::string place_name(const loader::StagePlan& stage, Role role) {
  return fmt::format("{} of {}", families::name(role), stage.name);
}

}  // namespace

Error unknown(std::string_view what, std::string_view found) {
  return {.code = Code::kLayoutMismatch,
          .thing = "index.bin",
          .wanted = fmt::format("{} that this version knows", what),
          .found = fmt::format("\"{}\"", found),
          .hint = "prepare the checkpoint again with this version of lode"};
}

void put_encoding(const formats::Encoding& encoding, RecordWriter& out) {
  out.text(formats::info(encoding.element).name, kFormatField);
  out.text(formats::info(encoding.scale).name, kFormatField);
  out.number(encoding.block_rows);
  out.number(encoding.block_k);
  out.number(static_cast<std::uint8_t>(encoding.has_scale ? 1 : 0));
  out.number(static_cast<std::uint8_t>(encoding.tensor_scale));
  out.number(std::uint16_t{0});
}

Result<formats::Format> read_format(RecordReader& in) {
  const std::string_view name = in.text(kFormatField);
  const auto format = formats::format_by_name(name);
  if (!format) return unknown("a number format", name);
  return *format;
}

Result<formats::Encoding> read_encoding(RecordReader& in) {
  formats::Encoding encoding;
  LODE_TRY(encoding.element, read_format(in));
  LODE_TRY(encoding.scale, read_format(in));
  encoding.block_rows = in.number<std::uint32_t>();
  encoding.block_k = in.number<std::uint32_t>();
  const auto has_scale = in.number<std::uint8_t>();
  const auto tensor_scale = in.number<std::uint8_t>();
  in.skip(sizeof(std::uint16_t));
  if (has_scale > 1) return unknown("whether there are scales", fmt::format("{}", has_scale));
  if (tensor_scale > 2) return unknown("a tensor scale", fmt::format("{}", tensor_scale));
  encoding.has_scale = has_scale == 1;
  encoding.tensor_scale = static_cast<formats::TensorScale>(tensor_scale);
  return encoding;
}

Error damaged(std::string thing, std::string wanted, std::string found) {
  return {.code = Code::kInvalidSource,
          .thing = std::move(thing),
          .wanted = std::move(wanted),
          .found = std::move(found),
          .hint = "the prepared checkpoint is damaged: prepare it again"};
}

void put_stage(const loader::StagePlan& stage, RecordWriter& out) {
  const std::size_t begin = out.size();
  out.number(stage.layer);
  out.number(static_cast<std::uint32_t>(stage.places.size()));
  out.number(static_cast<std::uint32_t>(stage.bank ? 1 : 0));
  out.number(std::uint32_t{0});
  out.number(stage.slab_bytes);
  out.number(stage.used_bytes);
  out.fill_to(begin + kStageBytes);
}

void put_place(const loader::TensorPlace& place, RecordWriter& out) {
  const std::size_t begin = out.size();
  out.text(families::name(place.role), kRoleField);
  put_meta(place.meta, out);
  out.number(place.offset_bytes);
  out.number(place.bytes);
  out.fill_to(begin + kPlaceBytes);
}

void put_bank(const loader::BankPlan& bank, RecordWriter& out) {
  const std::size_t begin = out.size();
  put_encoding(bank.record.gate_up, out);
  put_encoding(bank.record.down, out);
  out.number(bank.record.hidden);
  out.number(bank.record.intermediate);
  out.number(bank.num_experts);
  out.number(bank.record.record_bytes);
  out.number(static_cast<std::uint32_t>(bank.record.bias ? 1 : 0));
  out.fill_to(begin + kBankBytes);
}

void put_section(const Section& section, RecordWriter& out) {
  const std::size_t begin = out.size();
  out.number(static_cast<std::uint32_t>(section.kind));
  out.number(section.stage_idx);
  out.number(section.file_idx);
  out.number(std::uint32_t{0});
  out.number(section.file_offset_bytes);
  out.number(section.bytes);
  out.number(section.first_chunk);
  out.fill_to(begin + kSectionBytes);
}

Result<std::vector<loader::StagePlan>> read_stages(RecordReader& in, std::uint32_t num_stages,
                                                   const StageCounts& counts) {
  std::vector<loader::StagePlan> stages;
  StageCounts seen;
  for (std::uint32_t i = 0; i < num_stages; ++i) {
    const std::size_t begin = in.at();
    loader::StagePlan stage;
    stage.layer = in.number<std::int32_t>();
    const auto places = in.number<std::uint32_t>();
    const auto banks = in.number<std::uint32_t>();
    in.skip(sizeof(std::uint32_t));
    stage.slab_bytes = in.number<std::uint64_t>();
    stage.used_bytes = in.number<std::uint64_t>();
    in.skip(kStageBytes - (in.at() - begin));
    const bool model = i == 0;
    if (stage.layer != static_cast<std::int32_t>(i) - 1 || places > kMostPlaces ||
        banks > (model ? 0U : 1U) || stage.slab_bytes > kMostSlabBytes) {
      return damaged("index.bin", fmt::format("stage {}", i), "none that can be");
    }
    stage.name = model ? "model" : fmt::format("layer {}", stage.layer);
    stage.places.resize(places);
    if (banks == 1) stage.bank.emplace();
    seen.places += places;
    seen.banks += banks;
    stages.push_back(std::move(stage));
  }
  if (stages.empty() || seen.places != counts.places || seen.banks != counts.banks) {
    return damaged("index.bin", "stages that have all places and banks", "others");
  }
  return stages;
}

Status read_places(RecordReader& in, loader::StagePlan& stage) {
  for (loader::TensorPlace& place : stage.places) {
    const std::size_t begin = in.at();
    LODE_TRY(place.role, read_role(in));
    LODE_TRY(place.meta, read_meta(in));
    place.offset_bytes = in.number<std::uint64_t>();
    place.bytes = in.number<std::uint64_t>();
    in.skip(kPlaceBytes - (in.at() - begin));
  }
  return {};
}

Status read_bank(RecordReader& in, loader::StagePlan& stage) {
  const std::size_t begin = in.at();
  LODE_TRY(const formats::Encoding gate_up, read_encoding(in));
  LODE_TRY(const formats::Encoding down, read_encoding(in));
  const auto hidden = in.number<std::uint64_t>();
  const auto intermediate = in.number<std::uint64_t>();
  stage.bank->num_experts = in.number<std::uint64_t>();
  const auto record_bytes = in.number<std::uint64_t>();
  const auto bias = in.number<std::uint32_t>();
  in.skip(kBankBytes - (in.at() - begin));
  const bool possible = hidden > 0 && hidden < kMostExtent && intermediate > 0 &&
                        intermediate < kMostExtent && bias <= 1 && stage.bank->num_experts > 0 &&
                        stage.bank->num_experts <= kMostExperts;
  if (!possible) return damaged("experts of " + stage.name, "extents", "none that can be");
  const auto record = layout::make_expert_record(hidden, intermediate, gate_up, down, bias == 1);
  if (!record || record->record_bytes != record_bytes) {
    return damaged("experts of " + stage.name, "records of the size that their layout makes",
                   fmt::format("{} bytes", record_bytes));
  }
  const auto bytes = checked_mul(record_bytes, stage.bank->num_experts);
  if (!bytes || *bytes > kMostSlabBytes) {
    return damaged("experts of " + stage.name, "a bank that memory holds", "a larger one");
  }
  stage.bank->record = *record;
  return {};
}

Section read_section(RecordReader& in) {
  const std::size_t begin = in.at();
  Section section;
  section.kind = static_cast<SectionKind>(in.number<std::uint32_t>());
  section.stage_idx = in.number<std::uint32_t>();
  section.file_idx = in.number<std::uint32_t>();
  in.skip(sizeof(std::uint32_t));
  section.file_offset_bytes = in.number<std::uint64_t>();
  section.bytes = in.number<std::uint64_t>();
  section.first_chunk = in.number<std::uint64_t>();
  in.skip(kSectionBytes - (in.at() - begin));
  return section;
}

Status reckon_stage(loader::StagePlan& stage) {
  std::uint64_t end = 0;
  std::uint64_t used_bytes = 0;
  std::vector<bool> seen(families::kNumRoles, false);
  for (const loader::TensorPlace& place : stage.places) {
    const auto sizes = sizes_of(place.meta);
    const auto role = static_cast<std::size_t>(place.role);
    const auto scope = families::scope(place.role);
    const bool model = stage.layer == loader::StagePlan::kModel;
    if (!sizes || sizes->bytes != place.bytes || place.bytes > kMostSlabBytes) {
      return damaged(place_name(stage, place.role), "the bytes that its shape makes",
                     fmt::format("{}", place.bytes));
    }
    const bool apart = place.offset_bytes >= end && place.offset_bytes <= stage.slab_bytes &&
                       place.bytes <= stage.slab_bytes - place.offset_bytes;
    if (!apart || place.offset_bytes % kernels::kLineBytes != 0 || seen[role] ||
        scope != (model ? families::Scope::kModel : families::Scope::kLayer)) {
      return damaged(place_name(stage, place.role), "a place of its own in the slab",
                     fmt::format("byte {}", place.offset_bytes));
    }
    seen[role] = true;
    end = place.offset_bytes + place.bytes;
    used_bytes += sizes->used_bytes;
  }
  const memory::BufferCost dense = memory::buffer_cost(stage.slab_bytes);
  stage.mapped_bytes = dense.tag_bytes;
  stage.page_table_bytes = dense.page_table_bytes;
  if (stage.bank) {
    const layout::ExpertRecord& record = stage.bank->record;
    const memory::BufferCost bank = memory::buffer_cost(stage.bank->bytes());
    stage.mapped_bytes += bank.tag_bytes;
    stage.page_table_bytes += bank.page_table_bytes;
    used_bytes += stage.bank->num_experts * (record.record_bytes - record.padding_bytes);
  }
  stage.used_bytes = used_bytes;
  return {};
}

Status finish_stage(loader::StagePlan& stage) {
  const std::uint64_t said_bytes = stage.used_bytes;
  LODE_TRY_STATUS(reckon_stage(stage));
  if (stage.used_bytes == said_bytes) return {};
  return damaged(stage.name, fmt::format("{} bytes in use", stage.used_bytes),
                 fmt::format("{}", said_bytes));
}

}  // namespace lode::prepared
