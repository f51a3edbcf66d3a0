package launch

// Role is the part that an engine gave to this process.
type Role int

// String returns the name of the role in messages.
func (r Role) String() string {
	return [...]string{"none", "node agent", "rank"}[r]
}

// Roles.
const (
	RoleNone  Role = iota // no engine: start all ranks on this host
	RoleAgent             // one process for each host: start the ranks of this host
	RoleRank              // one process for each rank: this is one of them
)

// Engine is the launcher that started this process, and what it said about the place of
// the process in the job.
type Engine struct {
	Name string // for messages: "Slurm"; "" for none
	Role Role

	// For RoleRank.
	Rank, World, LocalRank, LocalWorld int

	// Node and Nodes are set for both roles; Nodes is 0 where the engine does not
	// say. PerNode is the number of ranks for an agent to start, or 0.
	Node, Nodes, PerNode int

	// PerNodeOf is set instead of PerNode where the engine wants a rank for each gpu,
	// each cpu, or auto: each gpu if there is one, else each cpu.
	PerNodeOf string

	MasterAddr string // "" where the engine does not say
	MasterPort int    // 0 likewise
}

// Agent returns the engine as seen by a rank that is alone on its host and was asked to
// start ranks: such a rank is the node agent of its host. A rank started by mscclpp-run
// itself, and one that is alone in its job, have no engine: ranks started in them are a
// job of their own.
func (e Engine) Agent() Engine {
	if e.Role != RoleRank || e.LocalWorld != 1 || e.World == 1 || e.Name == "mscclpp-run" {
		return Engine{}
	}
	return Engine{Name: e.Name, Role: RoleAgent, Node: e.Rank, Nodes: e.World, MasterAddr: e.MasterAddr, MasterPort: e.MasterPort}
}
