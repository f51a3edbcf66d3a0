// Package predict is the verb simulate: how long collectives would take on many hosts.
package predict

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscclpp-go/mscclpp/bench/sizes"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/internal/atomicfile"
	"github.com/mscclpp-go/mscclpp/internal/suggest"
	"github.com/mscclpp-go/mscclpp/simulate"
)

// Values of --algorithm for what collectives of this project choose: over any network,
// and where adapters reach the memory of GPUs.
const (
	programAlgorithm = "program"
	programDirect    = "program-direct"
)

// simulateVerb predicts collectives over many hosts. It is no job: nothing is
// started, and no device is needed.
type simulateVerb struct {
	hosts, gpus, bytes, machine string
	algorithm, format, plot     string
	factor                      int64
	pieces                      int
	published                   bool
	flags                       *pflag.FlagSet

	questions []simulate.Question // without algorithm, in the order of the table
	all       bool                // every algorithm, not only the fastest
	chosen    []simulate.Algorithm
	program   *simulate.Program // the program's choice, whether or not that is the fastest
}

// Command returns the verb simulate, which predicts collectives over many hosts.
func Command(env *verb.Env) *cobra.Command { return (&simulateVerb{}).command(env) }

func (v *simulateVerb) command(env *verb.Env) *cobra.Command {
	c := &cobra.Command{
		Use: "[COLLECTIVE...]",
		Long: `Predict how long collectives take over many hosts, from the latencies and rates of
links and adapters, by simulating who sends what to whom when. Nothing is measured, and no
device is needed. The model has no congestion, no noise and no slow ranks; docs/scaling.md
derives it and says how far it was off where it could be checked, see --published.
Without a name: allreduce. The fastest algorithm need not be one that collectives of this
project have: those have a * behind them. --algorithm program takes what they choose.`,
		Args: func(_ *cobra.Command, args []string) error { return v.parse(env, args) },
		RunE: func(*cobra.Command, []string) error { return v.run(env) },
	}
	v.flags = c.Flags()
	v.flags.SortFlags = false
	v.flags.StringVar(&v.hosts, "hosts", "2:1024", "MIN:MAX, each twice the one before, or a list of numbers of hosts")
	v.flags.StringVar(&v.gpus, "gpus", "8", "ranks of a host; a list: of the first host, the second, …, and again")
	v.flags.StringVarP(&v.bytes, "bytes", "b", "1K:1G", "MIN:MAX size of the larger buffer of a rank, or a list of sizes")
	v.flags.Int64VarP(&v.factor, "factor", "f", 4, "each size is so many times the one before")
	v.flags.StringVar(&v.machine, "machine", "h100", machineNames()+", or a YAML file with the parameters below and name or base")
	v.flags.StringVar(&v.algorithm, "algorithm", "best", "best; all; program, what collectives over hosts choose; program-direct, the same where kernels drive adapters; or a list: "+algorithmNames())
	v.flags.IntVar(&v.pieces, "pieces", 0, "pieces of the pipelined algorithms; default: the fastest power of two")
	v.flags.StringVar(&v.format, "format", "table", "table, or json with one object a line")
	v.flags.StringVar(&v.plot, "plot", "", "also draw the results into this SVG file")
	v.flags.BoolVar(&v.published, "published", false, "compare with times that were measured instead")
	for _, p := range simulate.Parameters() {
		unit := p.Unit
		if unit != "" {
			unit += ", "
		}
		v.flags.Float64(p.Name, 0, unit+p.Help+"; default: the machine's")
	}
	return c
}

func machineNames() string {
	var names []string
	for _, m := range simulate.Machines() {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}

func algorithmNames() string {
	on, err := simulate.NewCluster(2, 1)
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, a := range simulate.Algorithms(simulate.AllReduce, on) {
		names = append(names, a.String())
	}
	return strings.Join(names, ", ")
}

// parse reads all flags into questions.
func (v *simulateVerb) parse(env *verb.Env, args []string) error {
	asked := env.Asked()
	if asked.Ranks {
		return verb.Usage("simulate: it starts no ranks: expected --hosts and --gpus behind the verb, and none of the launcher's -n, --nnodes, --host and --hostfile")
	}
	if len(asked.Settings) > 0 {
		return verb.Usage("simulate: it reads no configuration: expected no %s; its own flags describe the machine", asked.Settings[0].Flag)
	}
	if asked.ConfigFile != "" {
		return verb.Usage("simulate: it reads no configuration: expected no --config; --machine takes a file that describes the machine")
	}
	if v.format != "table" && v.format != "json" {
		return verb.Usage("simulate: --format %q: expected table or json", v.format)
	}
	if v.published {
		return v.alone(args)
	}
	if err := v.ask(args); err != nil {
		return verb.Usage("simulate: %v", err)
	}
	return nil
}

// alone refuses what has no meaning beside --published.
func (v *simulateVerb) alone(args []string) (err error) {
	v.flags.Visit(func(f *pflag.Flag) {
		if f.Name != "published" && f.Name != "format" {
			err = verb.Usage("simulate: --%s beside --published: what was measured is given", f.Name)
		}
	})
	if len(args) > 0 {
		return verb.Usage("simulate: %s beside --published: what was measured is given", args[0])
	}
	return err
}

func (v *simulateVerb) ask(args []string) error {
	machine, err := v.readMachine()
	if err != nil {
		return err
	}
	swept, err := sizes.ParseList(v.bytes, v.factor)
	if err != nil {
		return fmt.Errorf("--bytes %q: expected MIN:MAX, or sizes with commas, such as 1K:1G or 8K,1M: %w", v.bytes, err)
	}
	hosts, err := parseHosts(v.hosts)
	if err != nil {
		return err
	}
	var pattern []int
	for _, text := range strings.Split(v.gpus, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if errors.Is(err, strconv.ErrRange) {
			return fmt.Errorf("--gpus %q: a number is too large: expected a job of at most %d ranks", v.gpus, simulate.MaxRanks)
		}
		if err != nil {
			return fmt.Errorf("--gpus %q: expected a number, or several with commas", v.gpus)
		}
		pattern = append(pattern, n)
	}
	if len(args) == 0 {
		args = []string{"allreduce"}
	}
	if err := v.algorithms(); err != nil {
		return err
	}
	v.questions = nil
	for _, name := range args {
		c, err := simulate.ParseCollective(name)
		if err != nil {
			return err
		}
		for _, h := range hosts {
			on, err := simulate.NewCluster(h, pattern...)
			if err != nil {
				return fmt.Errorf("--hosts %s --gpus %s: %w", v.hosts, v.gpus, err)
			}
			for _, bytes := range swept {
				v.questions = append(v.questions, simulate.Question{Machine: machine, Cluster: on, Collective: c, Bytes: bytes, Pieces: v.pieces})
			}
		}
	}
	return nil
}

// algorithms reads --algorithm.
func (v *simulateVerb) algorithms() error {
	v.all, v.chosen, v.program = v.algorithm == "all", nil, nil
	switch v.algorithm {
	case "best", "all":
		return nil
	case programAlgorithm, programDirect:
		v.program = &simulate.Program{Direct: v.algorithm == programDirect}
		return nil
	}
	for _, name := range strings.Split(v.algorithm, ",") {
		a, err := simulate.ParseAlgorithm(strings.TrimSpace(name))
		if err != nil {
			return fmt.Errorf("--algorithm %q%s: expected best, all, %s, %s, or some of %s: %w", name, suggest.Hint(suggest.Name(name, append(strings.Split(algorithmNames(), ", "), "best", "all", programAlgorithm, programDirect))), programAlgorithm, programDirect, algorithmNames(), simulate.ErrInvalid)
		}
		v.chosen = append(v.chosen, a)
	}
	return nil
}

// parseHosts reads a list of numbers, or the ends of a range that doubles.
func parseHosts(text string) ([]int, error) {
	wrong := fmt.Errorf("--hosts %q: expected MIN:MAX, or numbers with commas, such as 2:1024 or 2,3,8", text)
	large := fmt.Errorf("--hosts %q: a number is too large: expected a job of at most %d ranks", text, simulate.MaxRanks)
	low, high, swept := strings.Cut(text, ":")
	if swept {
		from, err1 := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if from > simulate.MaxRanks || to > simulate.MaxRanks { // also where they fit no integer
			return nil, large
		}
		if err1 != nil || err2 != nil || from < 1 || from > to {
			return nil, wrong
		}
		var all []int
		for ; from <= to; from *= 2 {
			all = append(all, from)
		}
		return all, nil
	}
	var all []int
	for _, part := range strings.Split(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if n > simulate.MaxRanks {
			return nil, large
		}
		if err != nil || n < 1 {
			return nil, wrong
		}
		all = append(all, n)
	}
	return all, nil
}

func (v *simulateVerb) run(env *verb.Env) error {
	if v.published {
		return printPublished(env.Stdout, v.format)
	}
	if err := verb.Writable(v.plot); err != nil { // before it takes its time
		return fmt.Errorf("simulate: --plot %s: %w", v.plot, err)
	}
	rows, err := v.predict()
	switch {
	case errors.Is(err, simulate.ErrInvalid):
		return verb.Usage("simulate: %v", err)
	case err != nil:
		return fmt.Errorf("simulate: %w", err)
	}
	if v.format == "json" {
		err = predictionLines(env.Stdout, rows)
	} else {
		err = predictionTable(env.Stdout, rows)
	}
	if err != nil || v.plot == "" {
		return err
	}
	err = atomicfile.File(v.plot, func(w io.Writer) error { return drawPredictions(w, rows, !v.all && v.chosen == nil) })
	if err != nil {
		return fmt.Errorf("simulate: --plot %s: %w", v.plot, err)
	}
	return nil
}

// predict answers all questions, as many at a time as there are processors.
func (v *simulateVerb) predict() ([]simulate.Prediction, error) {
	found := make([][]simulate.Prediction, len(v.questions))
	errs := make([]error, len(v.questions))
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				found[i], errs[i] = v.answer(v.questions[i])
			}
		})
	}
	for i := range v.questions {
		next <- i
	}
	close(next)
	workers.Wait()
	var rows []simulate.Prediction
	for i, err := range errs {
		if err != nil {
			return nil, err
		}
		rows = append(rows, found[i]...)
	}
	return rows, nil
}

func (v *simulateVerb) answer(q simulate.Question) ([]simulate.Prediction, error) {
	if v.program != nil {
		a, err := v.program.Chooses(q.Collective, q.Cluster, q.Bytes)
		if err != nil {
			return nil, err
		}
		q.Algorithm = a
		p, err := simulate.Predict(q)
		return []simulate.Prediction{p}, err
	}
	if v.chosen == nil {
		all, err := simulate.Best(q)
		if err == nil && len(all) == 0 {
			err = fmt.Errorf("%s over %d hosts: every algorithm is too large to be simulated: %w", q.Collective, q.Cluster.Hosts(), simulate.ErrTooLarge)
		}
		if err != nil || v.all {
			return all, err
		}
		return all[:1], nil
	}
	var all []simulate.Prediction
	for _, q.Algorithm = range v.chosen {
		p, err := simulate.Predict(q)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}
