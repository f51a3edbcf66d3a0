package cuda

import (
	"fmt"
	"os"

	"github.com/mscclpp-go/mscclpp/framework"
)

// envNVLS is the vendor's switch for multicast over NVLink, which holds here too.
const envNVLS = "NCCL_NVLS_ENABLE"

// noMulticast says why there is no object of a switch group.
func noMulticast(o framework.Object) string {
	switch {
	case o.Kind != framework.ObjectMulticast:
		return fmt.Sprintf("kind %d: expected a multicast object", o.Kind)
	case os.Getenv(envNVLS) == "0":
		return "multicast is switched off by " + envNVLS + "=0"
	}
	return "multicast objects are not made for NVIDIA devices"
}
