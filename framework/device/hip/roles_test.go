package hip

import (
	"fmt"
	"path/filepath"
)

// roles are what processes do that a test starts.
var roles = map[string]func() error{
	"count": func() error {
		n, err := Count()
		if err == nil {
			fmt.Print(n)
		}
		return err
	},
	"library": func() error {
		_, path, err := openLibrary()
		fmt.Print(filepath.Base(path))
		return err
	},
}
