// Package manifest writes the files with which other engines start a job: a batch
// script for Slurm, and objects for Kubernetes. The user submits them; the package does
// not talk to the engines.
package manifest

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/onfirstuse"
	"github.com/mscclpp-go/mscclpp/internal/suggest"
)

// Job is a program on several hosts.
type Job struct {
	Kind  string // one of Kinds
	Name  string // of the job, as Kubernetes has it: a-z, 0-9 and dashes
	Image string // of the containers; Slurm needs none
	Hosts int
	Ranks string   // on each host: a number, gpu, cpu or auto
	Run   string   // mscclpp-run there, a path or a name
	Flags []string // of mscclpp-run
	Args  []string // the program and its arguments
	Verb  bool     // Args are a verb of mscclpp-run instead
	Env   []string // NAME=VALUE for the ranks

	Secret     string // name of the Kubernetes secret with the key "secret"
	GPUs       int    // that each host is to have; 0 = not said
	MasterPort int    // 0 = the engine's or mscclpp-run's choice
}

// Kinds lists the kinds of manifest that Write can write.
func Kinds() []string { return []string{"sbatch", "jobset", "mpijob", "lws"} }

//go:embed templates
var files embed.FS

// Bounds of what is worth writing down.
const (
	maxHosts = 65536
	maxRanks = 1024
)

var (
	// The longest name that leaves room for what Kubernetes appends to it for pods.
	objectName = onfirstuse.Regexp(`^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$`)
	imageName  = onfirstuse.Regexp(`^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$`)
	pathName   = onfirstuse.Regexp(`^[A-Za-z0-9._/+-]+$`)
	plainWord  = onfirstuse.Regexp(`^[A-Za-z0-9._/:=,%@+-]+$`)
	varName    = onfirstuse.Regexp(`^[A-Za-z_][A-Za-z0-9_]*$`)
	number     = onfirstuse.Regexp(`^[1-9][0-9]{0,3}$`)
)

// Write writes the manifest. Errors wrap framework.ErrInvalid and say what was expected.
func Write(w io.Writer, j Job) error {
	if err := j.check(); err != nil {
		return err
	}
	t, err := template.New(j.Kind+".tmpl").Funcs(template.FuncMap{"yaml": yaml, "literal": literal, "shell": shell, "cut": cut}).ParseFS(files, "templates/*.tmpl")
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	var b bytes.Buffer // half a manifest is worse than none
	if err := t.Execute(&b, j); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

func (j *Job) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: manifest: %s", framework.ErrInvalid, fmt.Sprintf(format, args...))
	}
	switch {
	case !slices.Contains(Kinds(), j.Kind):
		return bad("kind %q%s: expected one of %s", j.Kind, suggest.Hint(suggest.Name(j.Kind, Kinds())), strings.Join(Kinds(), ", "))
	case !objectName().MatchString(j.Name):
		return bad("name %q: expected at most 40 of a-z, 0-9 and -, first a letter", j.Name)
	case j.Image == "" && j.Kind != "sbatch":
		return bad("no image: a %s needs one that has the program and mscclpp-run", j.Kind)
	case j.Image != "" && !imageName().MatchString(j.Image):
		return bad("image %q: expected a reference such as registry/name:tag", j.Image)
	case j.Hosts < 1 || j.Hosts > maxHosts:
		return bad("%d hosts: expected 1 to %d", j.Hosts, maxHosts)
	case j.ranks() > maxRanks:
		return bad("%q ranks on each host: expected 1 to %d", j.Ranks, maxRanks)
	case j.Kind == "mpijob" && !number().MatchString(j.Ranks):
		return bad("%q ranks on each host: mpirun needs a number", j.Ranks)
	case !number().MatchString(j.Ranks) && !slices.Contains([]string{"gpu", "cpu", "auto"}, j.Ranks):
		return bad("%q ranks on each host: expected 1 to %d, gpu, cpu or auto", j.Ranks, maxRanks)
	case !pathName().MatchString(j.Run):
		return bad("path %q of mscclpp-run: expected letters, digits and . _ / + -", j.Run)
	case len(j.Args) == 0:
		return bad("no program")
	case j.Kind != "sbatch" && !objectName().MatchString(j.Secret):
		return bad("name of the secret %q: expected at most 40 of a-z, 0-9 and -, first a letter", j.Secret)
	case j.GPUs < 0 || j.GPUs > maxRanks:
		return bad("%d GPUs of each host: expected at most %d", j.GPUs, maxRanks)
	case j.MasterPort < 0 || j.MasterPort > 65535:
		return bad("port %d: expected 1 to 65535", j.MasterPort)
	}
	for _, e := range j.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || !varName().MatchString(name) {
			return bad("variable %q: expected NAME=VALUE", e)
		}
	}
	for _, text := range slices.Concat(j.Flags, j.Args, j.Env) {
		if strings.ContainsAny(text, "\x00\n\r") {
			return bad("%q: expected a single line", text)
		}
	}
	return nil
}

// Agent returns the command that starts the ranks of a host.
func (j Job) Agent() []string {
	return append([]string{j.Run, "--nproc-per-node", j.Ranks}, j.rest()...)
}

// Rank returns the command of a rank that the engine starts.
func (j Job) Rank() []string { return append([]string{j.Run}, j.rest()...) }

// rest is what follows. Two dashes keep a program with the name of a verb a program.
func (j Job) rest() []string {
	out := slices.Clone(j.Flags)
	if !j.Verb {
		out = append(out, "--")
	}
	return append(out, j.Args...)
}

// World returns the number of all ranks, where it is known.
func (j Job) World() int { return j.ranks() * j.Hosts }

// ranks is the number of ranks of each host, or 0 where it is not known.
func (j *Job) ranks() int {
	n, err := strconv.Atoi(j.Ranks)
	if err != nil {
		return 0
	}
	return n
}

// EnvNames lists the names of the variables.
func (j Job) EnvNames() []string {
	var out []string
	for _, e := range j.Env {
		name, _, _ := strings.Cut(e, "=")
		out = append(out, name)
	}
	return out
}

// SecretFile is where containers find the secret.
const SecretFile = "/etc/mscclpp/secret"

// SecretFile returns the constant SecretFile, for templates.
func (j Job) SecretFile() string { return SecretFile }

// yaml writes a text so that YAML reads the same one, whatever is in it: JSON is YAML.
func yaml(text string) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(text)
	return strings.TrimSpace(b.String()), err
}

// literal is yaml for the command or a variable of a container, where Kubernetes takes
// $(NAME) for the value of a variable and $$ for $. A word is to arrive as it was given.
func literal(text string) (string, error) {
	return yaml(strings.ReplaceAll(text, "$", "$$"))
}

// shell writes a word of a shell's command line.
func shell(word string) string {
	if plainWord().MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// cut splits NAME=VALUE.
func cut(e string) []string {
	name, value, _ := strings.Cut(e, "=")
	return []string{name, value}
}
