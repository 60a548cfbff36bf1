// Arrow C++ as a peer for sparse tensors, which no other implementation reads or writes.
//
//   sparse to-sparse FORM INDEX_TYPE DENSE SPARSE    reads a Tensor message, writes it as a SparseTensor message
//   sparse to-dense SPARSE DENSE                     reads a SparseTensor message, writes it as a Tensor message
//
// FORM is coo, csr, csc or csf. Both print the form, the number of stored values, the type and the names of dimensions.
// With several SPARSE files joined by commas, to-dense reads each and writes DENSE.0, DENSE.1, ...

#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>
#include <arrow/sparse_tensor.h>
#include <arrow/tensor.h>

using Sparse = std::shared_ptr<arrow::SparseTensor>;

arrow::Result<Sparse> make_sparse(const std::string& form, const arrow::Tensor& dense,
                                  const std::shared_ptr<arrow::DataType>& index_type) {
  if (form == "coo") return arrow::SparseCOOTensor::Make(dense, index_type);
  if (form == "csr") return arrow::SparseCSRMatrix::Make(dense, index_type);
  if (form == "csc") return arrow::SparseCSCMatrix::Make(dense, index_type);
  if (form == "csf") return arrow::SparseCSFTensor::Make(dense, index_type);
  return arrow::Status::Invalid("no form ", form);
}

arrow::Result<std::shared_ptr<arrow::DataType>> integer(const std::string& name) {
  for (const auto& type : {arrow::int8(), arrow::int16(), arrow::int32(), arrow::int64(), arrow::uint8(),
                           arrow::uint16(), arrow::uint32(), arrow::uint64()}) {
    if (type->name() == name) return type;
  }
  return arrow::Status::Invalid("no integer type ", name);
}

void describe(const arrow::SparseTensor& tensor) {
  std::cout << tensor.sparse_index()->ToString() << " " << tensor.non_zero_length() << " "
            << tensor.type()->ToString();
  for (int64_t size : tensor.shape()) std::cout << " " << size;
  for (const auto& name : tensor.dim_names()) std::cout << " " << name;
  std::cout << std::endl;
}

arrow::Status to_sparse(const std::string& form, const std::string& index_name, const std::string& in,
                        const std::string& out) {
  ARROW_ASSIGN_OR_RAISE(auto index_type, integer(index_name));
  ARROW_ASSIGN_OR_RAISE(auto source, arrow::io::ReadableFile::Open(in));
  ARROW_ASSIGN_OR_RAISE(auto dense, arrow::ipc::ReadTensor(source.get()));
  ARROW_ASSIGN_OR_RAISE(auto sparse, make_sparse(form, *dense, index_type));
  describe(*sparse);
  ARROW_ASSIGN_OR_RAISE(auto sink, arrow::io::FileOutputStream::Open(out));
  int32_t metadata_length;
  int64_t body_length;
  ARROW_RETURN_NOT_OK(arrow::ipc::WriteSparseTensor(*sparse, sink.get(), &metadata_length, &body_length));
  return sink->Close();
}

arrow::Status to_dense(const std::string& in, const std::string& out) {
  // A mapping, as the reader of CSF tensors relies on bytes that lie beyond those that it asks for.
  ARROW_ASSIGN_OR_RAISE(auto source, arrow::io::MemoryMappedFile::Open(in, arrow::io::FileMode::READ));
  ARROW_ASSIGN_OR_RAISE(auto sparse, arrow::ipc::ReadSparseTensor(source.get()));
  describe(*sparse);
  ARROW_ASSIGN_OR_RAISE(auto dense, sparse->ToTensor(arrow::default_memory_pool()));
  ARROW_ASSIGN_OR_RAISE(auto sink, arrow::io::FileOutputStream::Open(out));
  int32_t metadata_length;
  int64_t body_length;
  ARROW_RETURN_NOT_OK(arrow::ipc::WriteTensor(*dense, sink.get(), &metadata_length, &body_length));
  return sink->Close();
}

arrow::Status run(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "to-sparse" && argc == 6) return to_sparse(argv[2], argv[3], argv[4], argv[5]);
  if (command == "to-dense" && argc == 4) {
    std::istringstream names(argv[2]);
    std::string name;
    for (int i = 0; std::getline(names, name, ','); ++i) {
      ARROW_RETURN_NOT_OK(to_dense(name, std::string(argv[3]) + "." + std::to_string(i)));
    }
    return arrow::Status::OK();
  }
  return arrow::Status::Invalid("usage: sparse to-sparse FORM INDEX_TYPE DENSE SPARSE | to-dense SPARSE,... DENSE");
}

int main(int argc, char** argv) {
  const arrow::Status status = run(argc, argv);
  if (!status.ok()) std::cerr << status.ToString() << std::endl;
  return status.ok() ? 0 : 1;
}
