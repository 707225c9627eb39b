"""A terminal's screen, as far as the live view uses one: what a user sees after some output."""

import re

PIECES = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


class Screen:
    """Rows of text with the colour of each; what scrolls out at the top is kept in ``rows`` all the same.

    It knows CR, LF, cursor up, erase line, colours, and showing the cursor. Anything else is an error, and so is text
    beyond the last column: a terminal would wrap it, and the rows would not be where the view takes them to be.
    """

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.rows: list[str] = [""]
        self.styles: list[str] = [""]
        self.cursor_shown = True
        self._row = self._column = 0
        self._style = ""

    def feed(self, output: str) -> None:
        """Take what a program wrote."""
        at = 0
        for piece in PIECES.finditer(output):
            assert piece.start() == at, output[at : at + 20]
            at = piece.end()
            parameters, command, control, text = piece.groups()
            if text:
                self._write(text)
            elif control == "\r":
                self._column = 0
            elif control == "\n":
                self._row, self._column = self._row + 1, 0
                if self._row == len(self.rows):
                    self.rows.append("")
                    self.styles.append("")
            else:
                self._command(command, parameters)
        assert at == len(output), output[at : at + 20]

    def _write(self, text: str) -> None:
        before = self.rows[self._row].ljust(self._column)
        end = self._column + len(text)
        assert end <= self.columns, text
        self.rows[self._row] = before[: self._column] + text + before[end:]
        self.styles[self._row] = self._style or self.styles[self._row]
        self._column = end

    def _command(self, command: str, parameters: str) -> None:
        match command, parameters:
            case "A", number:
                self._row -= int(number or 1)
                assert self._row >= 0
            case "K", "2":
                self.rows[self._row] = self.styles[self._row] = ""
            case "m", style:
                self._style = "" if style in ("", "0") else style
            case (("h" | "l"), "?25"):
                self.cursor_shown = command == "h"
            case other:
                raise AssertionError(other)

    @property
    def seen(self) -> list[str]:
        """What is on it, without empty rows at the end."""
        return "\n".join(row.rstrip() for row in self.rows).rstrip("\n").split("\n")

    def style_of(self, words: str) -> str:
        """Return the last style in the last row that has these words: 31 is red, 32 green, 1 bold, 2 dim."""
        return [style for row, style in zip(self.rows, self.styles, strict=True) if words in row][-1]
