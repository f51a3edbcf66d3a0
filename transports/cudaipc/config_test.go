package cudaipc

import (
	"errors"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func TestConfig(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"the list is empty": func(c *Config) { c.Shares = nil },
		`"carrier-pigeon"`:  func(c *Config) { c.Shares = []string{"vmm", "carrier-pigeon"} },
		"listed twice":      func(c *Config) { c.Shares = []string{"vmm", "vmm"} },
		"leave out fabric":  func(c *Config) { c.Shares, c.Fabric = []string{"vmm"}, true },
	} {
		c := Config{}.Defaults()
		change(&c)
		if _, err := New(c); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want ErrInvalid with %q", err, want)
		}
	}
}
