#include <fcntl.h>

#include <span>
#include <utility>
#include <vector>

#include "lode/base/fmt.h"
#include "lode/io/system_calls.h"
#include "lode/loader/weight_set_builder.h"
#include "lode/memory/mapped_file.h"
#include "lode/prepared/chunk_check.h"
#include "lode/prepared/stage_maker.h"

namespace lode::prepared {
namespace {

bool is_same(const io::SourceFile& file, const io::FileStatus& status) {
  return file.device == status.device && file.inode == status.inode && file.bytes == status.bytes &&
         file.mtime_ns == status.mtime_ns && file.ctime_ns == status.ctime_ns;
}

class Mapper final : public StageMaker {
 public:
  explicit Mapper(const StartParts& parts)
      : parts_(parts), builder_(parts.plan), sections_(parts.checkpoint.index.sections) {}
  ~Mapper() override { close(); }
  Mapper(const Mapper&) = delete;
  Mapper& operator=(const Mapper&) = delete;

  Status begin(std::span<std::byte>) override {
    for (const io::SourceFile& file : parts_.checkpoint.files) LODE_TRY_STATUS(open(file));
    return {};
  }
  Status make(std::size_t stage_idx) override;
  Status end() override {
    close();  // a mapping needs no descriptor
    return {};
  }
  Result<loader::WeightSet> weights() override { return std::move(builder_).finish(); }

 private:
  Status open(const io::SourceFile& file);
  void close() {
    for (const int descriptor : std::exchange(descriptors_, {})) calls_.close(descriptor);
  }
  Result<memory::Buffer> map(SectionKind kind, std::size_t stage_idx, std::uint64_t bytes);

  StartParts parts_;
  io::SystemCalls& calls_ = io::system_calls();
  loader::WeightSetBuilder builder_;
  std::vector<int> descriptors_;
  std::span<const Section> sections_;  // that are left
};

Status Mapper::open(const io::SourceFile& file) {
  const int descriptor = calls_.open(file.path, O_RDONLY | O_NONBLOCK, 0);
  if (descriptor < 0) return io::system_error(file.path, "open", descriptor);
  descriptors_.push_back(descriptor);
  io::FileStatus status;
  if (const int answer = calls_.status(descriptor, status); answer < 0) {
    return io::system_error(file.path, "fstat", answer);
  }
  if (is_same(file, status)) return {};
  return Error{.code = Code::kSourceChanged,
               .thing = file.path,
               .wanted = "the file that was opened, unchanged",
               .found = "another, or a later time of change"};
}

Result<memory::Buffer> Mapper::map(SectionKind kind, std::size_t stage_idx, std::uint64_t bytes) {
  if (bytes == 0) return memory::make_buffer(parts_.ledger, memory::Tag::kWeights, 0, "no slab");
  LODE_CHECK(!sections_.empty() && sections_.front().kind == kind &&
                 sections_.front().stage_idx == stage_idx,
             "sections come in the order of the stages");
  const Section& section = sections_.front();
  sections_ = sections_.subspan(1);
  return memory::map_file(parts_.ledger, memory::Tag::kWeights,
                          {.descriptor = descriptors_[section.file_idx],
                           .offset_bytes = section.file_offset_bytes,
                           .bytes = bytes,
                           .path = parts_.checkpoint.files[section.file_idx].path},
                          section_name(parts_.checkpoint.index, section));
}

Status Mapper::make(std::size_t stage_idx) {
  const loader::StagePlan& stage = parts_.plan.stages[stage_idx];
  LODE_TRY(memory::Buffer dense, map(SectionKind::kDense, stage_idx, stage.slab_bytes));
  memory::Buffer bank;
  if (stage.bank) {
    LODE_TRY(bank, map(SectionKind::kBank, stage_idx, stage.bank->bytes()));
  }
  builder_.take_slabs(stage, std::move(dense), std::move(bank));
  parts_.progress.finished_bytes.fetch_add(stage.mapped_bytes, std::memory_order_relaxed);
  return {};
}

}  // namespace

std::unique_ptr<StageMaker> make_mapper(const StartParts& parts) {
  return std::make_unique<Mapper>(parts);
}

}  // namespace lode::prepared
