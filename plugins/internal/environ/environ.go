// Package environ says what of the host's environment a plugin gets.
package environ

import "strings"

// passed lists the variables of the host that a plugin gets; "*" ends a prefix.
// Everything else stays behind, above all secrets, and LD_PRELOAD, which would put a
// communication library into the process that serves it.
var passed = []string{
	"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "XDG_RUNTIME_DIR", "TZ", "LANG", "LC_*",
	"LD_LIBRARY_PATH",
	"GOTRACEBACK", "GODEBUG", "GOCOVERDIR", "ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS",
	"CUDA_*", "NVIDIA_*", "HIP_*", "ROCR_*", "HSA_*", "ROCM_*",
	"IBV_*", "RDMAV_*", "MLX4_*", "MLX5_*", "RDMA_*", "BNXT_*", "EFA_*",
	"MSCCLPP_PLUGIN_*",
}

// Of one plugin; a host that is itself a plugin does not hand on its own.
const (
	ControlKey    = "MSCCLPP_PLUGIN_CONTROL_FD"    // number of the inherited control socket
	ConnectionKey = "MSCCLPP_PLUGIN_CONNECTION_FD" // number of the inherited connection for gRPC
	FolderKey     = "MSCCLPP_PLUGIN_FOLDER"        // path of the folder that contains the program
	LogLevelKey   = "MSCCLPP_PLUGIN_LOG_LEVEL"     // least level that the host shows
)

// Filter takes what a plugin gets from the host's environment.
func Filter(host []string) []string {
	var out []string
	for _, entry := range host {
		name, _, _ := strings.Cut(entry, "=")
		switch name {
		case ControlKey, ConnectionKey, FolderKey, LogLevelKey:
			continue // of the plugin that this process is itself
		}
		for _, pattern := range passed {
			prefix, wild := strings.CutSuffix(pattern, "*")
			if name == pattern || wild && strings.HasPrefix(name, prefix) {
				out = append(out, entry)
				break
			}
		}
	}
	return out
}
