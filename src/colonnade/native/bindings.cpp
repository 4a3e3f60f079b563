// The Python module: checks types and shapes, copies what a caller could change while other
// threads run, releases the interpreter lock, and calls the kernels.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "multiexp.h"
#include "tables.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace colonnade {
namespace {

using Int64Array = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using DigitArray = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// A held view of a bytes-like object.
class Buffer {
 public:
  explicit Buffer(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  const std::uint8_t* data() const { return static_cast<const std::uint8_t*>(view_.buf); }
  std::size_t size() const { return static_cast<std::size_t>(view_.len); }
  ByteVector copied() const { return ByteVector(data(), data() + size()); }

 private:
  Py_buffer view_;
};

std::vector<std::int64_t> copied(const Int64Array& array) {
  return std::vector<std::int64_t>(array.data(), array.data() + array.size());
}

template <class Work>
auto without_interpreter_lock(const Work& work) {
  const nb::gil_scoped_release release;
  return work();
}

std::shared_ptr<Modulus> make_modulus(nb::handle n, const std::optional<std::string>& kernel) {
  const Buffer buffer(n);
  return std::make_shared<Modulus>(buffer.data(), buffer.size(),
                                   kernel ? kernel_by_name(*kernel) : selected_kernel());
}

Residues from_bytes(const ModulusPointer& modulus, nb::handle data, int threads) {
  const Buffer buffer(data);
  return without_interpreter_lock(
      [&] { return Residues::from_bytes(modulus, buffer.data(), buffer.size(), threads); });
}

nb::bytes to_bytes(const Residues& a, int threads) {
  nb::bytes result =
      nb::steal<nb::bytes>(PyBytes_FromStringAndSize(
          nullptr, static_cast<Py_ssize_t>(a.count() * a.modulus()->byte_width())));
  if (!result.is_valid()) throw nb::python_error();
  auto* data = reinterpret_cast<std::uint8_t*>(PyBytes_AS_STRING(result.ptr()));
  without_interpreter_lock([&] { a.to_bytes(data, threads); });
  return result;
}

Residues take(const Residues& a, const Int64Array& indices) {
  const std::vector<std::int64_t> own = copied(indices);
  return without_interpreter_lock([&] { return a.take(own.data(), own.size()); });
}

Residues power(const Residues& a, nb::handle exponent, std::size_t bits, int threads) {
  const ByteVector own = Buffer(exponent).copied();
  return without_interpreter_lock([&] { return pow_secret(a, own, bits, threads); });
}

Residues power_vartime(const Residues& a, nb::handle exponents, std::size_t width, int threads) {
  const ByteVector own = Buffer(exponents).copied();
  return without_interpreter_lock([&] { return pow_vartime(a, own, width, threads); });
}

Residues multiexp(const Residues& bases, const Int64Array& indptr, const Int64Array& indices,
                  const Int64Array& values, int threads, std::size_t groups,
                  std::size_t table_bytes) {
  const CsrMatrix matrix{copied(indptr), copied(indices), copied(values)};
  return without_interpreter_lock(
      [&] { return multiexp_csr_vartime(bases, matrix, groups, table_bytes, threads); });
}

template <Residues (FixedBaseTable::*kPower)(const ByteVector&, std::size_t, std::size_t, int)
              const>
Residues table_power(const FixedBaseTable& table, nb::handle exponents, std::size_t width,
                     int threads, std::size_t base) {
  const ByteVector own = Buffer(exponents).copied();
  return without_interpreter_lock([&] { return (table.*kPower)(own, width, base, threads); });
}

Residues products(const ProductTable& table, const DigitArray& digits, int threads) {
  if (digits.shape(1) != table.bases()) {
    throw std::invalid_argument("got " + std::to_string(digits.shape(1)) +
                                " digits a row; want one for each of " +
                                std::to_string(table.bases()) + " bases");
  }
  const ByteVector own(digits.data(), digits.data() + digits.size());
  return without_interpreter_lock(
      [&] { return table.products_vartime(own, digits.shape(0), threads); });
}

void bind_batches(nb::module_& m) {
  nb::class_<Modulus>(m, "Modulus")
      .def(nb::new_(&make_modulus), "n"_a, nb::kw_only(), "kernel"_a = nb::none())
      .def_prop_ro("bits", &Modulus::bits)
      .def_prop_ro("bytes", &Modulus::byte_width)
      .def_prop_ro("kernel", [](const Modulus& self) { return self.kernel().name; })
      .def("from_bytes", &from_bytes, "data"_a, "threads"_a = 1)
      .def("ones", &Residues::ones, "count"_a);
  nb::class_<Residues>(m, "Residues")
      .def("__len__", &Residues::count)
      .def_prop_ro("modulus", &Residues::modulus)
      .def("to_bytes", &to_bytes, "threads"_a = 1)
      .def("take", &take, nb::arg("indices").noconvert())
      .def_static("concat", &Residues::concat, "parts"_a);
}

void bind_operations(nb::module_& m) {
  const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
  m.def("mul", &multiply, "a"_a, "b"_a, "threads"_a = 1, unlocked);
  m.def("square_times", &square_times, "a"_a, "k"_a, "threads"_a = 1, unlocked);
  m.def("invert", &invert, "a"_a, "threads"_a = 1, unlocked);
  m.def("horner_pack", &horner_pack, "a"_a, "group"_a, "shift"_a, "threads"_a = 1, unlocked);
  m.def("pow_secret", &power, "a"_a, "exponent"_a, "bits"_a, "threads"_a = 1);
  m.def("pow_vartime", &power_vartime, "a"_a, "exponents"_a, "width"_a, "threads"_a = 1);
  m.def("multiexp_csr_vartime", &multiexp, "bases"_a, nb::arg("indptr").noconvert(),
        nb::arg("indices").noconvert(), nb::arg("values").noconvert(), "threads"_a = 1,
        "groups"_a = 1, nb::kw_only(), "table_bytes"_a = kDefaultTableBytes);
}

void bind_tables(nb::module_& m) {
  const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<FixedBaseTable>(m, "FixedBaseTable")
      .def(nb::init<const ModulusPointer&, const Residues&, std::size_t, std::size_t, int>(),
           "modulus"_a, "bases"_a, "exponent_bits"_a, "window"_a, "threads"_a = 1, unlocked)
      .def("__len__", &FixedBaseTable::bases)
      .def_prop_ro("exponent_bits", &FixedBaseTable::exponent_bits)
      .def_prop_ro("memory_bytes", &FixedBaseTable::bytes)
      .def("power_secret", &table_power<&FixedBaseTable::power_secret>, "exponents"_a, "width"_a,
           "threads"_a = 1, nb::kw_only(), "base"_a = 0)
      .def("power_vartime", &table_power<&FixedBaseTable::power_vartime>, "exponents"_a,
           "width"_a, "threads"_a = 1, nb::kw_only(), "base"_a = 0);
  nb::class_<ProductTable>(m, "ProductTable")
      .def(nb::init<const ModulusPointer&, const Residues&, std::size_t, int>(), "modulus"_a,
           "bases"_a, "digit_bits"_a = 8, "threads"_a = 1, unlocked)
      .def("__len__", &ProductTable::bases)
      .def_prop_ro("memory_bytes", &ProductTable::bytes)
      .def("products_vartime", &products, nb::arg("digits").noconvert(), "threads"_a = 1);
}

}  // namespace
}  // namespace colonnade

NB_MODULE(_kernels, m) {
  // A traceback that somebody still holds at exit keeps its batches alive; that is no leak.
  nanobind::set_leak_warnings(false);
  colonnade::bind_batches(m);
  colonnade::bind_operations(m);
  colonnade::bind_tables(m);
  m.def("cpu_features", &colonnade::cpu_features);
  m.def("selected_kernel", [] { return colonnade::selected_kernel().name; });
}
