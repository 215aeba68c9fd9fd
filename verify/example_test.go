package verify_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/jetkeep/jetkeep/backup/repo"
	"github.com/jetkeep/jetkeep/format"
	"github.com/jetkeep/jetkeep/verify"
)

func ExampleCheck() {
	ctx := context.Background()
	home, err := repo.OpenDir("/backups")
	if err != nil {
		log.Print(err) // repo.ErrNoRepository
		return
	}
	b, err := home.Find(ctx, "ORDERS", repo.Latest)
	if err != nil {
		log.Print(err)
		return
	}
	report, err := verify.Check(ctx, b)
	if damage, ok := errors.AsType[*format.DamageError](err); ok {
		log.Printf("damaged at byte %d, last good entry %s", damage.Offset, damage.LastGood)
		return
	}
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println(report.Stream, report.Figures.Messages, report.Notes)
}
