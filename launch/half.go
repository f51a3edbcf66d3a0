package launch

import (
	"fmt"
	"strconv"

	"github.com/mscclpp-go/mscclpp/framework"
)

// halves are variables that mean a place in a job together, which every engine sets together. One
// alone was lost on its way, as into a container: to go by neither would start jobs of one rank, or
// of this host, each of which thinks that it is the whole.
//
// Numbers of tasks of Slurm and Flux are not among them: shells of an allocation may have
// these as well.
var halves = [][2]string{
	{"RANK", "WORLD_SIZE"}, {"WORLD_SIZE", "RANK"},
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
	{"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"}, {"JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"},
	{"PMI_RANK", "PMI_SIZE"}, {"PMI_SIZE", "PMI_RANK"},
	{"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
	{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
}

// half says which variable is missing, where no engine was recognized.
func half(get lookup) error {
	for _, pair := range halves {
		if get(pair[0]) == "" || get(pair[1]) != "" || pair[0] == "SLURM_PROCID" && !stepOfSlurm(get) {
			continue
		}
		return fmt.Errorf("%w: %s=%s is set, and %s is not: expected both or neither; mscclpp-run --standalone goes by neither", framework.ErrInvalid, pair[0], get(pair[0]), pair[1])
	}
	return nil
}

// stepOfSlurm reports whether srun has started this process, or one around it. Batch scripts
// and interactive shells have the number of a task as well.
func stepOfSlurm(get lookup) bool {
	n, err := strconv.ParseUint(get("SLURM_STEP_ID"), 10, 64)
	return err == nil && n < firstSpecialStep
}
