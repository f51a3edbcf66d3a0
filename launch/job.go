package launch

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// MaxRanks is the largest number of ranks on a host. A larger number is a mistake,
// which would be costly to find out by starting processes until the kernel refuses.
const MaxRanks = 1024

// Job is a program to be started once for each rank of this host.
type Job struct {
	Path string   // of the program: as exec wants it, see LookPath
	Args []string // its arguments; the first is the name by which it is called
	Dir  string   // working folder; "" = the launcher's
	Env  []string // environment of all ranks, to which those of Place are added

	Place Place
	ID    string // marks the processes of this launcher; random if "", that of Guard if there is one

	// Rendezvous is how the ranks find each other; its zero value leaves it to them.
	UniqueID string
	Listener *os.File // inherited by rank 0, named by MSCCLPP_LISTEN_FD; shut down when that ends, closed with the job

	Stdin  *os.File // for the first rank of the job; nil = none
	Stdout io.Writer
	Stderr io.Writer
	Report io.Writer    // where the launcher's own lines go; nil = nowhere
	Failed func(Result) // called once, as soon as a rank has failed; may be nil
	Output Output
	Masks  []Mask // processors of each local rank; nil = not bound

	Linger time.Duration // for others to end by themselves after the first failure
	Grace  time.Duration // between SIGTERM and SIGKILL

	Signals <-chan os.Signal // to be forwarded; nil = none

	// Supervisor is the command line of a program that calls supervise.Run with its
	// standard input and last argument. If it is empty, nothing cleans up when this
	// process is killed, except that the ranks themselves are killed.
	Supervisor []string
	Guard      *Guard // a supervisor that was started already, which also chose the ID; goes before Supervisor

	// OwnOrphans makes this process the parent of its orphaned descendants, which it kills
	// at the end. Only for a process without other children.
	OwnOrphans bool
}

// Place is the position of the local ranks in the job.
type Place struct {
	Local int // ranks on this host
	First int // rank of the first of them
	World int // ranks in the job
	Node  int // index of this host
	Nodes int
	Job   string // name of the job, the same on all hosts; "" = Job.ID

	MasterAddr string // host of rank 0
	MasterPort int    // free for the program's own use
}

// Output says what happens to the output of the ranks.
type Output struct {
	Tag       bool   // "[3] " in front of each line
	Timestamp bool   // the time in front of that
	Dir       string // rank-N.out and rank-N.err are written there…
	Tee       bool   // …and lines are printed as well
}

// Result is how a job ended.
type Result struct {
	Code   int    // exit code for the launcher: 0, that of the first failure, 128+n, or 1 if output was lost
	Rank   int    // that failed first; -1 if none
	Signal string // that ended it, "" if it exited
	Asked  bool   // a signal for the launcher, or the context, has ended the job
}

// hangUp ends the listener of a rank 0 that has ended, also in processes that it left
// behind. Otherwise ranks would get a connection there that nobody answers.
func (j *Job) hangUp() {
	if j.Listener != nil {
		_ = syscall.Shutdown(int(j.Listener.Fd()), syscall.SHUT_RDWR)
	}
}

func (j *Job) validate() error {
	p := j.Place
	switch {
	case p.Local < 1:
		return fmt.Errorf("%w: %d ranks on this host, expected at least 1", framework.ErrInvalid, p.Local)
	case p.Local > MaxRanks:
		return fmt.Errorf("%w: %d ranks on this host, expected at most %d", framework.ErrInvalid, p.Local, MaxRanks)
	case p.First < 0 || p.First+p.Local > p.World:
		return fmt.Errorf("%w: ranks %d to %d on this host, expected them below the job's %d", framework.ErrInvalid, p.First, p.First+p.Local-1, p.World)
	case j.Masks != nil && len(j.Masks) != p.Local:
		return fmt.Errorf("%w: %d processor masks for %d ranks", framework.ErrInvalid, len(j.Masks), p.Local)
	case j.Path == "" || len(j.Args) == 0:
		return fmt.Errorf("%w: no program", framework.ErrInvalid)
	}
	return nil
}
