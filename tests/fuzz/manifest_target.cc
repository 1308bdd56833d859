// The bytes are what follows a manifest's checksum, which is made right, or the parser would look
// at none of them. What is taken can be written and is read back as the same.
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/strings.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/checkpoint/manifest.h"

namespace gantry {

bool Fuzz(std::string_view text) {
  static_cast<void>(ParseManifest(text));
  Hasher hasher;
  hasher.Update(text);
  const absl::StatusOr<CheckpointManifest> manifest =
      ParseManifest(StrCat("{\"checksum\": \"", hasher.HexDigest(), "\",\n", text));
  if (!manifest.ok()) return false;
  const absl::StatusOr<std::string> written = SerializeManifest(*manifest);
  GANTRY_CHECK_OK(written.status());
  const absl::StatusOr<CheckpointManifest> again = ParseManifest(*written);
  GANTRY_CHECK_OK(again.status());
  GANTRY_CHECK(*SerializeManifest(*again) == *written) << *written;
  return true;
}

}  // namespace gantry
