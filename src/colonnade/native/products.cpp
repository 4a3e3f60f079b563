#include "products.h"

#include <algorithm>
#include <atomic>

namespace colonnade {
namespace {

// Pieces of a list that is cut are not shorter, so that few products are left to join.
constexpr std::size_t kShortestPiece = 8;
// Pieces for each lane of each thread: lanes then end at nearly the same time.
constexpr std::size_t kPiecesPerLane = 4;

}  // namespace

void ProductLists::cut(std::size_t slots, ProductLists& joins, std::optional<Residues>& parts) {
  const std::size_t longest = std::max(kShortestPiece, factors_.size() / (slots * kPiecesPerLane));
  const auto pieces = [&](const List& list) {
    return (list.end - list.begin + longest - 1) / longest;
  };
  std::size_t count = 0;
  for (const List& list : lists_) count += pieces(list) > 1 ? pieces(list) : 0;
  if (count == 0) return;
  parts.emplace(modulus_, count);
  std::vector<List> whole;
  whole.swap(lists_);
  std::size_t next = 0;
  for (const List& list : whole) {
    const std::size_t parts_here = pieces(list), length = list.end - list.begin;
    if (parts_here < 2) {
      lists_.push_back(list);
      continue;
    }
    for (std::size_t part = 0; part < parts_here; ++part, ++next) {
      lists_.push_back({list.begin + part * length / parts_here,
                        list.begin + (part + 1) * length / parts_here, parts->row(next)});
      joins.append(parts->row(next));
    }
    joins.finish(list.result);
  }
}

void ProductLists::run(int threads) const {
  const std::size_t lanes = modulus_->kernel().lanes, limbs = modulus_->limbs();
  std::atomic<std::size_t> next_list{0};
  const auto work = [&](std::size_t, std::size_t) {
    Multiplier arithmetic(*modulus_);
    Limb *products = arithmetic.temporary(0), *factors = arithmetic.temporary(1);
    arithmetic.set_one(products);
    struct {
      std::size_t next = 0, end = 0;
      Limb* result = nullptr;
    } lane[kMaxLanes];
    // Starts the lane on a list of two factors or more, having dealt with shorter ones. False
    // where there is none.
    const auto take_list = [&](std::size_t l) {
      for (;;) {
        const std::size_t i = next_list.fetch_add(1);
        if (i >= lists_.size()) return false;
        const List& list = lists_[i];
        const Limb* first = list.begin < list.end ? factors_[list.begin] : modulus_->one();
        if (list.end - list.begin > 1) {
          for (std::size_t k = 0; k < limbs; ++k) products[k * lanes + l] = first[k];
          lane[l] = {list.begin + 1, list.end, list.result};
          return true;
        }
        copy(list.result, first, limbs);
      }
    };
    std::size_t busy = 0;
    for (std::size_t l = 0; l < lanes; ++l) busy += take_list(l);
    while (busy > 0) {
      const Limb* rows[kMaxLanes];
      for (std::size_t l = 0; l < lanes; ++l) {
        rows[l] = lane[l].result == nullptr ? modulus_->one() : factors_[lane[l].next++];
      }
      arithmetic.load(factors, rows);
      arithmetic.multiply(products, products, factors);
      for (std::size_t l = 0; l < lanes; ++l) {
        if (lane[l].result == nullptr || lane[l].next < lane[l].end) continue;
        for (std::size_t k = 0; k < limbs; ++k) lane[l].result[k] = products[k * lanes + l];
        lane[l].result = nullptr;
        busy -= !take_list(l);
      }
    }
  };
  const std::size_t workers = threads > 1 ? static_cast<std::size_t>(threads) : 1;
  parallel_for(std::min(workers, (lists_.size() + lanes - 1) / lanes), threads, work);
}

void ProductLists::multiply(int threads) && {
  const std::size_t workers = threads > 1 ? static_cast<std::size_t>(threads) : 1;
  ProductLists joins(modulus_);
  std::optional<Residues> parts;
  cut(modulus_->kernel().lanes * workers, joins, parts);
  // The longest first: what is left at the end is short.
  std::stable_sort(lists_.begin(), lists_.end(), [](const List& a, const List& b) {
    return a.end - a.begin > b.end - b.begin;
  });
  run(threads);
  if (parts) std::move(joins).multiply(threads);
}

}  // namespace colonnade
