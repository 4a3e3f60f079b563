#include "window_tables.h"

#include <algorithm>

#include "exponent.h"

namespace colonnade {
namespace {

constexpr std::size_t kWidestWindow = 8;

std::uint64_t magnitude(std::int64_t value) {
  const std::uint64_t bits = static_cast<std::uint64_t>(value);
  return value < 0 ? 0 - bits : bits;
}

// Windows of an unsigned value, from its low end: odd powers below 2^window.
void push_unsigned(std::vector<Step>& steps, std::size_t column, std::uint64_t value,
                   std::size_t window) {
  for (unsigned position = 0; value != 0;) {
    const unsigned zeros = static_cast<unsigned>(__builtin_ctzll(value));
    value >>= zeros;
    position += zeros;
    const std::uint64_t power = value & ((std::uint64_t{1} << window) - 1);
    value -= power;
    steps.push_back({column, static_cast<std::uint16_t>(power),
                     static_cast<std::uint8_t>(position), false});
  }
}

// Signed digits (wNAF), one bit wider over the same odd powers: fewer steps. `value` is at most
// 2^63, so that adding a digit does not wrap.
void push_signed(std::vector<Step>& steps, std::size_t column, std::uint64_t value,
                 bool negative, std::size_t window) {
  for (unsigned position = 0; value != 0;) {
    const unsigned zeros = static_cast<unsigned>(__builtin_ctzll(value));
    value >>= zeros;
    position += zeros;
    const std::uint64_t range = std::uint64_t{1} << (window + 1);
    std::uint64_t power = value & (range - 1);
    const bool from_above = power > range / 2;
    if (from_above) {
      power = range - power;
      value += power;
    } else {
      value -= power;
    }
    steps.push_back({column, static_cast<std::uint16_t>(power),
                     static_cast<std::uint8_t>(position), negative != from_above});
  }
}

}  // namespace

WindowTables::WindowTables(const Residues& bases, const CsrMatrix& matrix, std::size_t groups,
                           std::size_t most_bytes, int threads)
    : bases_(bases),
      groups_(groups),
      window_(bases.count() / groups, 1),
      start_(window_.size(), 0) {
  choose_windows(matrix, most_bytes / kLimbBytes);
  build(threads);
}

void WindowTables::choose_windows(const CsrMatrix& matrix, std::size_t most_limbs) {
  std::vector<std::size_t> bits(window_.size(), 0);
  for (std::size_t e = 0; e < matrix.values.size(); ++e) {
    const std::uint64_t value = magnitude(matrix.values[e]);
    if (value > 1) bits[static_cast<std::size_t>(matrix.indices[e])] += bit_length(value);
  }
  const auto window_limbs = [&](std::size_t window) {  // a width of 1 needs the base alone
    return window == 1 ? 0 : (groups_ << (window - 1)) * bases_.modulus()->limbs();
  };
  // Within the memory bound: the widest windows give way first. A width of 1 takes none.
  for (std::size_t widest = kWidestWindow;; --widest) {
    std::size_t total = 0;
    for (std::size_t column = 0; column < window_.size(); ++column) {
      window_[column] = cheapest_window(widest, [&](std::size_t w) {
        const std::size_t table = w == 1 ? 0 : std::size_t{1} << (w - 1);
        return table + bits[column] / (w + 1);
      });
      start_[column] = total;
      total += window_limbs(window_[column]);
    }
    if (total <= most_limbs) {
      table_.resize(total);
      return;
    }
  }
}

void WindowTables::build(int threads) {
  struct Item {
    std::size_t column, group;
  };
  std::vector<Item> items;
  for (std::size_t column = 0; column < window_.size(); ++column) {
    for (std::size_t group = 0; window_[column] > 1 && group < groups_; ++group) {
      items.push_back({column, group});
    }
  }
  // Like windows side by side: the lanes of a group go as far as the widest of them.
  const auto powers = [&](const Item& item) {
    return std::size_t{1} << (window_[item.column] - 1);
  };
  std::stable_sort(items.begin(), items.end(),
                   [&](const Item& a, const Item& b) { return powers(a) > powers(b); });
  const auto fill = [&](Multiplier& arithmetic, std::size_t first, std::size_t count) {
    const Limb* bases[kMaxLanes];
    for (std::size_t lane = 0; lane < arithmetic.lanes(); ++lane) {
      const Item& item = items[first + (lane < count ? lane : 0)];
      bases[lane] = bases_.row(item.column * groups_ + item.group);
    }
    arithmetic.load(arithmetic.temporary(0), bases);
    const std::size_t most = powers(items[first]);
    LimbVector table(most * arithmetic.group_limbs());
    odd_powers(arithmetic, table.data(), arithmetic.temporary(0), most);
    for (std::size_t i = 0; i < most; ++i) {
      Limb* to[kMaxLanes];
      for (std::size_t lane = 0; lane < arithmetic.lanes(); ++lane) {
        to[lane] = arithmetic.temporary(Multiplier::kTemporaries);
        if (lane >= count || i >= powers(items[first + lane])) continue;
        to[lane] = table_.data() + place(items[first + lane].column, items[first + lane].group, i);
      }
      arithmetic.store(to, table.data() + i * arithmetic.group_limbs());
    }
  };
  for_each_group(*bases_.modulus(), items.size(), threads, fill);
}

std::vector<Step> plan_row(const CsrMatrix& matrix, const WindowTables& tables, std::size_t row,
                           bool has_negative) {
  std::vector<Step> steps;
  for (auto e = static_cast<std::size_t>(matrix.indptr[row]);
       e < static_cast<std::size_t>(matrix.indptr[row + 1]); ++e) {
    const std::int64_t value = matrix.values[e];
    const auto column = static_cast<std::size_t>(matrix.indices[e]);
    if (has_negative) {
      push_signed(steps, column, magnitude(value), value < 0, tables.window(column));
    } else {
      push_unsigned(steps, column, magnitude(value), tables.window(column));
    }
  }
  std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) {
    return a.inverse != b.inverse ? b.inverse : a.position > b.position;
  });
  return steps;
}

}  // namespace colonnade
