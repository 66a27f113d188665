#include "trainer/distributed/model_parallel/model_mesh.h"

#include <vector>

namespace gloo_bypass::trainer {

ModelMesh::ModelMesh(GroupCommunicator& all, const ModelParallelOptions& options) : all_(all) {
  const MeshPlace place = options.placeOf(all.rank(), all.worldSize());
  if (place.copies == 1) {
    return;
  }
  std::vector<int> parts, copies;
  for (int part = 0; part < place.parts; ++part) {
    parts.push_back(place.copy * place.parts + part);
  }
  for (int copy = 0; copy < place.copies; ++copy) {
    copies.push_back(copy * place.parts + place.part);
  }
  parts_ = all.subgroup(parts);
  copies_ = all.subgroup(copies);
}

}  // namespace gloo_bypass::trainer
