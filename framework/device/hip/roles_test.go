package hip

import (
	"fmt"
	"os"
	"path/filepath"
)

// envCode names the file of a code object, for role load.
const envCode = "HIP_TEST_CODE"

// roles are what processes do that a test starts.
var roles = map[string]func() error{
	"count": func() error {
		n, err := Count()
		if err == nil {
			fmt.Print(n)
		}
		return err
	},
	"load": func() error {
		code, err := os.ReadFile(os.Getenv(envCode))
		if err != nil {
			return err
		}
		d, err := Open(0)
		if err != nil {
			return err
		}
		defer d.Close()
		m, err := d.Load(code)
		if err != nil {
			return err
		}
		return m.Close()
	},
	"library": func() error {
		_, path, err := openLibrary()
		fmt.Print(filepath.Base(path))
		return err
	},
}
