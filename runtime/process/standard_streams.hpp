#pragma once

namespace parcae {

/// Takes the numbers of those of standard input, output and error that this process was started without: else the next
/// connection or file would have them, and be written into whatever is printed. What is written to them fails. To be
/// called before anything is opened.
void hold_standard_streams();

} // namespace parcae
