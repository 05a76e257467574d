#include "lode/checkpoint/index_builder.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "lode/base/fmt.h"

namespace lode::checkpoint {

void IndexBuilder::add(Shard shard, const ShardHeader& header) {
  const auto shard_id = static_cast<std::uint32_t>(index_.shards_.size());
  shard.data_offset = header.data_offset;
  index_.shards_.push_back(std::move(shard));
  for (const TensorRecord& tensor : header.tensors) {
    index_.tensors_.push_back(tensor);
    index_.tensors_.back().shard_id = shard_id;
  }
}

Result<TensorIndex> IndexBuilder::finish(const IndexFile* promised) && {
  std::ranges::sort(index_.tensors_, [](const TensorRecord& a, const TensorRecord& b) {
    return std::tie(a.name, a.shard_id) < std::tie(b.name, b.shard_id);
  });
  LODE_TRY_STATUS(settle_duplicates(promised));
  if (promised != nullptr) {
    LODE_TRY_STATUS(check_promises(*promised));
    note_extras(*promised);
  }
  index_.tensors_.shrink_to_fit();
  return std::move(index_);
}

// Of two tensors of one name the one that the index file assigns counts; the other is dropped here
// and so can never be read.
Status IndexBuilder::settle_duplicates(const IndexFile* promised) {
  std::size_t dropped = 0;
  std::string first;
  auto& tensors = index_.tensors_;
  auto kept = tensors.begin();
  for (auto next = tensors.begin(); next != tensors.end();) {
    auto end = next + 1;
    while (end != tensors.end() && end->name == next->name) ++end;
    auto counts = next;
    if (end - next > 1) {
      const auto shard = promised != nullptr ? promised->shard_of(next->name) : std::nullopt;
      if (shard) counts = std::ranges::find(next, end, *shard, &TensorRecord::shard_id);
      if (!shard || counts == end) {
        return Error{.code = Code::kInvalidSource,
                     .thing = fmt::format("tensor {}", printable(next->name)),
                     .wanted = "one copy, or an index that says which counts",
                     .found = fmt::format("copies in {} and {}", index_.shard_of(next[0]).name,
                                          index_.shard_of(next[1]).name)};
      }
      if (dropped == 0) first = fmt::format("{}", printable(next->name));
      dropped += static_cast<std::size_t>(end - next) - 1;
    }
    *kept++ = *counts;
    next = end;
  }
  tensors.erase(kept, tensors.end());
  if (dropped != 0) {
    note(
        fmt::format("{} copies of tensors are left aside, the index names another shard for them "
                    "(first: {})",
                    dropped, first));
  }
  return {};
}

Status IndexBuilder::check_promises(const IndexFile& promised) {
  for (const IndexFile::Entry& entry : promised.entries) {
    const TensorRecord* const tensor = index_.find(entry.tensor);
    if (tensor != nullptr && tensor->shard_id == entry.shard) continue;
    return Error{
        .code = Code::kInvalidSource,
        .thing = fmt::format("tensor {}", printable(entry.tensor)),
        .wanted = fmt::format("in {}, as the index says", promised.shard_names[entry.shard]),
        .found = tensor == nullptr ? std::string("in no shard")
                                   : fmt::format("in {}", index_.shard_of(*tensor).name),
        .hint = "the index and the shards are not of one checkpoint"};
  }
  return {};
}

void IndexBuilder::note_extras(const IndexFile& promised) {
  if (index_.tensors_.size() > promised.entries.size()) {
    const auto extra = std::ranges::find_if(index_.tensors_, [&](const TensorRecord& tensor) {
      return !promised.shard_of(tensor.name);
    });
    note(fmt::format("{} tensors of the shards are missing in the index (first: {})",
                     index_.tensors_.size() - promised.entries.size(), printable(extra->name)));
  }
  const std::uint64_t bytes = index_.tensor_bytes();
  if (promised.total_bytes && *promised.total_bytes != bytes) {
    note(fmt::format("the index says {} bytes, the tensors have {}", *promised.total_bytes, bytes));
  }
}

}  // namespace lode::checkpoint
