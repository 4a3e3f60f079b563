// Products of lists of numbers: what multi-exponentiations and tables of powers come down to.
#pragma once

#include <optional>
#include <vector>

#include "residues.h"

namespace colonnade {

// Lists of rows of one modulus, each of them multiplied into one row.
class ProductLists {
 public:
  explicit ProductLists(const ModulusPointer& modulus) : modulus_(modulus) {}

  void append(const Limb* factor) { factors_.push_back(factor); }
  // Ends a list: the product of what was appended since the last, or one. `result` is no factor
  // of another list.
  void finish(Limb* result) {
    lists_.push_back({begin_, factors_.size(), result});
    begin_ = factors_.size();
  }

  // Every lane of every thread takes the next list when it is done with one: lists of any lengths
  // keep all lanes busy. Few long lists are cut first, at no cost in multiplications.
  void multiply(int threads) &&;

 private:
  struct List {
    std::size_t begin, end;
    Limb* result;
  };

  void cut(std::size_t slots, ProductLists& joins, std::optional<Residues>& parts);
  void run(int threads) const;

  ModulusPointer modulus_;
  std::vector<const Limb*> factors_;
  std::vector<List> lists_;
  std::size_t begin_ = 0;
};

}  // namespace colonnade
