package launch

import "strings"

// prefixes begin the names of the variables by which Detect recognizes engines that number
// their processes by other names than RANK and WORLD_SIZE.
var prefixes = []string{
	"OMPI_", "PMIX_", "PRTE_", "PMI_", "MPI_LOCAL", "PALS_", "MV2_COMM_WORLD_", "JSM_NAMESPACE_", "FLUX_", "SLURM_",
	"PET_", "LWS_", "SKYPILOT_", "JOB_COMPLETION_INDEX",
}

// OfEngine reports whether a variable is one of those. A program that places its ranks
// itself hides them from Detect.
func OfEngine(name string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}
